"""What the READMEs name exists: files, recipes, and every tool's flags."""
import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md',
             *(f'{folder}/README.md' for folder in ('configs', 'tools', 'benchmarks', 'cvt_dense/weights'))]
TOOLS = {'benchmark', 'convert_checkpoint', 'demo', 'get_flops', 'plot', 'predict', 'test', 'train'}


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


@pytest.fixture(scope='module')
def flags_of(run_tool):
    @cache
    def flags_of(tool: str) -> set[str]:
        helps = [run_tool(f'tools/{tool}.py', *command, '--help').stdout
                 for command in ([('model', ), ('data', )] if tool == 'benchmark' else [()])]
        return set(re.findall(r'--[a-z][a-z-]*', ' '.join(helps)))
    return flags_of


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


def test_flags_exist(flags_of):
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
