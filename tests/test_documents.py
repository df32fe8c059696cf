"""What the READMEs name exists: files, recipes, every tool's flags; tests run what the front page says to type."""
import io
import re
import runpy
import sys
from contextlib import redirect_stdout
from functools import cache
from itertools import product
from pathlib import Path
from unittest import mock

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md',
             *(f'{folder}/README.md' for folder in ('configs', 'tools', 'benchmarks', 'cvt_dense/weights'))]
# What README.md says to type, and the tests that run it: the same tool with the same flags, on little data. A new line
# in the README needs a row here.
RUN_BY = {
    'pip install -e PATH_OF_THIS_CHECKOUT': ['tools/test_wheel.py::test_editable_install'],
    "_base_ = 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'": [
        'configs/test_configs.py::test_readmes_config_for_mmdet',
        'tools/test_mm_tools.py::test_own_tools_and_inferencers'],
    "_base_ = __import__('cvt_dense').recipe('maskrcnn_cvt13_coco.py')": [
        'tools/test_wheel.py::test_strangers_config_trains'],
    'cvt-train': ['tools/test_wheel.py::test_strangers_config_trains'],
    **dict.fromkeys(('cvt-test', 'cvt-predict', 'cvt-plot', 'cvt-export', 'cvt-attention'),
                    ['tools/test_wheel.py::test_strangers_config_trains']),
    'make demo': ['tools/test_demo.py::test_table_commands_and_pictures', 'tools/test_setup.py::test_no_compiler'],
    'make test': ['tools/test_setup.py::test_no_compiler'],  # and whoever reads this line in its output
    'source .venv/bin/activate': [],
    'python tools/train.py configs/cvt13_in1k.py --data-root /data/imagenet': [
        'tools/test_train_classifier.py::test_trains_evaluates_and_saves'],
    'tools/dist_train.sh configs/maskrcnn_cvt21_coco.py 8 --data-root /data/coco': [
        'launch/test_distributed_dense.py::test_detection'],
    'python tools/train.py configs/upernet_cvt13_ade20k.py --data-root /data/ADEChallengeData2016 --auto-scale-lr': [
        'tools/test_predict.py::test_dense', 'launch/test_dumps.py::test_three_generations_are_one_run'],
    'python tools/test.py CONFIG CHECKPOINT [--tta] [--fuse] [--out DIR]': [
        'models/test_mask_tta.py::test_files_of_predictions', 'engine/hooks/test_fuse.py::test_same_metrics'],
    'python tools/predict.py CONFIG CHECKPOINT IMAGE_OR_FOLDER... [--out-dir DIR] [--score-thr 0.3]': [
        'tools/test_predict.py::test_classification', 'tools/test_predict.py::test_dense'],
    'python tools/export.py CONFIG CHECKPOINT model.onnx [--precision int8] [--evaluate]': [
        'deploy/test_export.py::test_the_tool_writes_judges_and_says_so'],
    'python tools/attention.py CONFIG CHECKPOINT IMAGE --point 64,64': [
        'tools/test_attention.py::test_picture_and_numbers'],
}
TOOLS = {path.stem for path in (ROOT / 'tools').glob('[a-z]*.py')}


def code(document: str) -> list[str]:
    """Commands and names: the lines of code blocks, joined where they continue, and the spans between backquotes."""
    text = (ROOT / document).read_text()
    blocks = re.findall(r'^```[a-z]*\n(.*?)^```', text, re.M | re.S)
    spans = re.findall(r'`([^`]+)`', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S))
    lines = [line.split(' #')[0] for block in blocks for line in block.replace('\\\n', ' ').splitlines()]
    return lines + [' '.join(span.split()) for span in spans]


def expand(name: str) -> list[str]:
    """'a_{b,c}[_d]' to a_b, a_b_d, a_c, a_c_d."""
    parts = re.split(r'\{([^}]*)\}|\[([^]]*)\]', name)
    choices = [(plain, ) for plain in parts[::3]]
    for i, (alternatives, option) in enumerate(zip(parts[1::3], parts[2::3])):
        choices.insert(2 * i + 1, alternatives.split(',') if alternatives is not None else ('', option))
    return [''.join(choice) for choice in product(*choices)]


@cache
def flags_of(tool: str) -> set[str]:
    """What its --help and those of its subcommands name; in this process, because 16 starts take a minute."""
    subcommands = [path.stem for path in (ROOT / 'tools/_benchmark').glob('*.py') if '\nHELP = ' in path.read_text()]
    text = io.StringIO()
    for command in ([(name, ) for name in subcommands] if tool == 'benchmark' else [()]):
        with (mock.patch('sys.argv', [tool, *command, '--help']), redirect_stdout(text),
              mock.patch('sys.path', [str(ROOT / 'tools'), *sys.path]), pytest.raises(SystemExit) as ending):
            runpy.run_path(str(ROOT / f'tools/{tool}.py'), run_name='__main__')
        assert not ending.value.code
    return set(re.findall(r'--[a-z][a-z-]*', text.getvalue()))


@pytest.mark.parametrize('document', DOCUMENTS)
def test_files_and_links_exist(document):
    text = (ROOT / document).read_text()
    names = [name for span in code(document)
             for name in re.findall(r'(?<![\w/.])(?:configs|tools|tests|benchmarks|cvt_dense|\.ci)/[\w./-]+', span)]
    names = [name for name in names if not re.search(r'NAME|/test_$', name)]  # placeholders: NAME, test_<file>
    assert names or document.startswith('C')
    links = re.findall(r'\]\(([^)#:]+)\)', text)
    missing = [name for name in names if not (ROOT / name).exists()]
    missing += [link for link in links if not (ROOT / document).parent.joinpath(link).exists()]
    assert not missing


def test_recipes_exist():
    table = re.findall(r'^\| [^|]+ \| `([^`]+)` \|', (ROOT / 'configs/README.md').read_text(), re.M)
    recipes = [name for entry in table for name in expand(entry) if '_' in name and not name.endswith('.py')]
    assert len(recipes) >= 18 and not [name for name in recipes if not (ROOT / f'configs/{name}.py').exists()]


def test_flags_exist():
    named = 0
    for document in DOCUMENTS:
        for span in code(document):
            flags = set(re.findall(r'(?<![\w-])--[a-z][a-z-]*', span))
            tool = re.search(r'(?:tools/|^)(?:dist_|slurm_)?(\w+)\.(?:py|sh)', span)
            if not flags or span.startswith(('.venv', 'pip', 'GPUS=')):
                continue
            if tool and tool[1] in TOOLS:
                unknown = flags - flags_of(tool[1])
            else:
                unknown = flags - set().union(*map(flags_of, TOOLS))
            assert not unknown, (document, span)
            named += len(flags)
    assert named > 30


def test_readme_is_a_front_page():
    """Under 130 lines, and no sentence stands twice in the documents."""
    assert len((ROOT / 'README.md').read_text().splitlines()) <= 130
    seen: dict[str, str] = {}
    for document in DOCUMENTS:
        text = re.sub(r'^```.*?^```|^\|.*?$', '', (ROOT / document).read_text(), flags=re.M | re.S)
        for sentence in re.split(r'(?<=[.:])\s+', ' '.join(text.split())):
            if len(sentence.split()) >= 6:
                assert sentence not in seen, (sentence, document, seen[sentence])
                seen[sentence] = document


def commands(document: str) -> list[str]:
    """What a document says to type: shell lines, the ``_base_`` of configs, commands between backquotes."""
    text = (ROOT / document).read_text()
    shell = re.findall(r'^```bash\n(.*?)^```', text, re.M | re.S)
    lines = [line for block in shell for line in block.replace('\\\n', ' ').splitlines()]
    lines += re.findall(r'^_base_ = .*', text, re.M)
    spans = re.findall(r'`([^`]+)`', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S))
    lines += [span for span in spans if re.match(r'(pip|make|source|python) |cvt-|tools/\w+\.(py|sh) ', span)]
    return [' '.join(line.split(' #')[0].split()) for line in lines if line]


def test_every_command_of_the_front_page_is_run():
    typed = commands('README.md')
    assert len(typed) > 15 and set(typed) == set(RUN_BY), (
        'README.md and RUN_BY above name different commands. Give each a row with the tests that run it: '
        f'{set(typed).symmetric_difference(RUN_BY)}')
    for command, tests in RUN_BY.items():
        source = ''
        for file, _, name in (test.partition('::') for test in tests):
            text = (ROOT / 'tests' / file).read_text()
            assert re.search(rf'^def {name}\(', text, re.M), (file, name)
            source += text
        for word in re.findall(r'tools/\w+\.(?:py|sh)|--[a-z-]+', command):
            assert word in source, f'{command}: {tests} do not have {word}'
    for target in re.findall(r'make (\w+)', ' '.join(typed)):
        assert re.search(rf'^{target}:', (ROOT / 'Makefile').read_text(), re.M)
