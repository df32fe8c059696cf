"""Compare the files that the documentation lists for a run with the files that it has written."""
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / 'docs/reference/run_folder.md'
# Names in the page's block, and the files that they match.
MEANT = {'CONFIG': r'[^/]+', 'TIME': r'\d{8}_\d{6}', 'METRIC': r'\w+', 'epoch_N': r'(epoch|iter)_\d+', 'N': r'\d+',
         'R': r'\d+'}


def explained() -> dict[str, re.Pattern]:
    """Return the names in the page's block, and what files each is about; a name that ends with '/' is a folder."""
    block = re.search(r'^```\n(.*?)^```', PAGE.read_text(), re.M | re.S)[1]
    names = [line.split()[0] for line in block.splitlines() if not line.startswith(' ')]
    words = re.compile('epoch_N|CONFIG|TIME|METRIC|(?<=[a-z])[NR]')
    patterns = [words.sub(lambda word: MEANT[word[0]], name.replace('.', r'\.')) for name in names]
    return {name: re.compile(pattern + ('.+' if name.endswith('/') else '')) for name, pattern in zip(names, patterns)}


def left(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob('*') if path.is_file())


def unexplained(run: Path) -> list[str]:
    """Files of a run that no line of the page is about."""
    return [file for file in left(run) if not any(pattern.fullmatch(file) for pattern in explained().values())]


def missing(run: Path) -> list[str]:
    """Return the names in the page that no file of a run matches."""
    return [name for name, pattern in explained().items() if not any(map(pattern.fullmatch, left(run)))]
