"""What tools/README.md says that a run leaves, against what it has left."""
import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / 'tools' / 'README.md'
# A name in the README's block stands for all that these say.
MEANT = {'CONFIG': r'[^/]+', 'TIME': r'\d{8}_\d{6}', 'METRIC': r'\w+', 'epoch_N': r'(epoch|iter)_\d+', 'N': r'\d+',
         'R': r'\d+'}


def explained() -> dict[str, re.Pattern]:
    """The names in the README's block, and what files each is about; one with '/' at its end, all in that folder."""
    block = re.search(r'## What a run leaves.*?^```\n(.*?)^```', README.read_text(), re.M | re.S)[1]
    names = [line.split()[0] for line in block.splitlines() if not line.startswith(' ')]
    words = re.compile('epoch_N|CONFIG|TIME|METRIC|(?<=[a-z])[NR]')
    patterns = [words.sub(lambda word: MEANT[word[0]], name.replace('.', r'\.')) for name in names]
    return {name: re.compile(pattern + ('.+' if name.endswith('/') else ''))
            for name, pattern in zip(names, patterns)}


def left(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob('*') if path.is_file())


def unexplained(run: Path) -> list[str]:
    """Files of a run that no line of the README is about."""
    return [file for file in left(run) if not any(pattern.fullmatch(file) for pattern in explained().values())]


def missing(run: Path) -> list[str]:
    """Names in the README that no file of a run stands for."""
    return [name for name, pattern in explained().items() if not any(map(pattern.fullmatch, left(run)))]
