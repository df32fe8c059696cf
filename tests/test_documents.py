"""The documents name existing files, links, recipes, targets and flags."""
import argparse
import re
import runpy
import shlex
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from load_tool import ROOT, load_tool

import cvt_dense

FOLDERS = ('', 'configs', 'tools', 'benchmarks', 'cvt_dense/weights', 'docs', 'docs/get_started', 'docs/guides',
           'docs/reference', 'docs/results')
DOCUMENTS = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).glob('*.md'))]
TOOLS = {path.stem for path in (ROOT / 'tools').glob('[a-z]*.py')}


def code(document: str) -> list[str]:
    """Return the lines of code blocks, joined where they continue, and the spans between backquotes."""
    text = (ROOT / document).read_text()
    blocks = re.findall(r'^```[a-z]*\n(.*?)^```', text, re.M | re.S)
    spans = re.findall(r'`([^`]+)`', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S))
    lines = [line.split(' #')[0] for block in blocks for line in block.replace('\\\n', ' ').splitlines()]
    return lines + [' '.join(span.split()) for span in spans]


@cache
def flags_in_help(tool: str) -> set[str]:
    """Return what its --help and those of its subcommands name."""
    parser = load_tool(tool).build_parser()
    subcommands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    parsers = [parser, *(command for action in subcommands for command in action.choices.values())]
    return {flag for command_parser in parsers for flag in re.findall(r'--[a-z][a-z-]*', command_parser.format_help())}


@pytest.mark.parametrize('document', DOCUMENTS)
def test_files_links_and_targets_exist(document):
    text = (ROOT / document).read_text()
    names = [name for span in code(document)
             for name in re.findall(r'(?<![\w/.])(?:configs|tools|tests|benchmarks|cvt_dense|\.ci)/[\w./-]+', span)]
    names = [name for name in names if not re.search(r'NAME|/test_$', name)]  # placeholders: NAME, test_<file>
    links = re.findall(r'\]\((?!\.\./\.\./actions/)([^)#:]+)[)#]', text)
    missing = [name for name in names if not (ROOT / name).exists()]
    missing += [link for link in links if not (ROOT / document).parent.joinpath(link).exists()]
    for file, anchor in re.findall(r'\]\(([^)#:]*)#([\w-]+)\)', text):
        page = (ROOT / document).parent / file if file else ROOT / document
        headings = re.findall(r'^#+ (.*)', page.read_text() if page.exists() else '', re.M)
        missing += {anchor} - {re.sub(r'[^\w\- ]', '', line.lower()).replace(' ', '-') for line in headings}
    targets = re.findall(r'^(\w+):', (ROOT / 'Makefile').read_text(), re.M)
    missing += [target for span in code(document) for target in re.findall(r'^make (\w+)', span)
                if target not in targets]
    assert not missing


CLUSTERS = [path for path in sorted((ROOT / 'docs/examples').iterdir()) if path.suffix in ('.sbatch', '.yaml')]


@pytest.mark.parametrize('example', CLUSTERS, ids=lambda path: path.name)
def test_examples_for_clusters_call_scripts_that_exist(example):
    text = example.read_text()
    names = re.findall(r'(?:configs|tools|docs)/[\w./-]+', text)
    assert {Path(name).suffix for name in names} >= {'.py', '.sh'}
    assert not [name for name in names if not (ROOT / name).exists()]
    training = re.split(r'tools/\w+_train\.sh', re.sub('^#.*', '', text, flags=re.M))[-1]
    assert set(re.findall(r'(?<=\s)--[a-z][a-z-]*(?=[\s=])', training)) <= flags_in_help('train')
    if example.suffix == '.yaml':
        assert isinstance(yaml.safe_load(text), dict)


def test_generated_parts_are_those_that_the_command_writes():
    make_tables = SimpleNamespace(**runpy.run_path(str(ROOT / 'docs/make_tables.py')))
    used = [name for page in make_tables.PAGES for _, name, _, _ in make_tables.BLOCK.findall(page.read_text())]
    assert set(used) == set(make_tables.PARTS)
    assert [page for page in make_tables.PAGES if page.read_text() != make_tables.filled(page.read_text())] == []


@pytest.mark.parametrize('file, pattern', [
    ('CITATION.cff', r'^version: (.*)'), ('CHANGELOG.md', r'^## (\d\S+)'),
    ('docs/examples/trainjob.yaml', r'cvt_dense:(\S+)')])
def test_version(file, pattern):
    assert re.search(pattern, (ROOT / file).read_text(), re.M)[1] == cvt_dense.__version__


def test_flags_exist_and_commands_are_accepted():
    """Every command of a tool, with its placeholders, by the tool's parser; those with ... and | are no commands."""
    sources = ''.join(path.read_text() for path in (ROOT / 'benchmarks').glob('*.py'))
    known = set().union(re.findall(r"'(--[a-z][a-z-]*)'", sources), *map(flags_in_help, TOOLS))
    parsers, commands = {}, 0
    for document in sorted(set(DOCUMENTS) - {'CHANGELOG.md'}):  # which names flags that are gone
        for span in code(document):
            if not span.startswith(('.venv', 'pip', 'hf ', 'GPUS=', 'trtexec', 'uvicorn', 'gunicorn', 'python $(')):
                assert {*re.findall(r'(?<![\w-])--[a-z][a-z-]*', span)} <= known, (document, span)
            command = re.match(r'(?:\w+=\S+ )*python tools/(\w+)\.py (.*)', span)
            if command and not re.search(r'\.\.\.|\|', span):
                parser = parsers.setdefault(command[1], load_tool(command[1]).build_parser())
                args = shlex.split(command[2])
                if re.match('published/|hf://|cvt_dense://', args[0]):  # in place of config and checkpoint
                    args = [args[0], *args]
                try:
                    parser.parse_args(args)
                except SystemExit:
                    pytest.fail(f'{document}: {span}')
                commands += 1
    assert commands > 40


def test_the_list_of_mistakes_fits_the_project():
    """`make faults` takes long; each of its texts must be in its file once, and each test must exist."""
    for fault in tomllib.loads((ROOT / 'tests/faults.toml').read_text())['fault']:
        file, _, name = fault['test'].partition('::')
        assert (ROOT / fault['file']).read_text().count(fault['old']) == 1, fault
        assert f'def {name.split("[")[0]}' in (ROOT / file).read_text(), fault
