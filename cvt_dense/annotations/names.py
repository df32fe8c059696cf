"""Names that the tools of annotation and of file systems give a meaning, so that they are no class and no data."""
import re
from collections.abc import Collection

# As they are compared: in lower case, letters and digits alone.
NO_CLASS = {*('ignore ignored ignoredregion ignoredregions ignoreregion void dontcare unlabeled unlabelled outofroi '
              'background bg').split()}  # what counts nowhere, or is no object
SPLITS = {*'train training val valid validation dev test testing'.split()}
# Of file systems and programs, in lower case; 'recycle' and 'thumbs' may be classes.
RUBBISH = {*('__macosx thumbs.db ehthumbs.db desktop.ini @eadir $recycle.bin #recycle @recycle __pycache__ '
             'lost+found').split(), 'system volume information'}


def _compared(name: str) -> str:
    return re.sub(r'[\W_]', '', str(name)).lower()


def is_rubbish(name: str) -> bool:
    """Return whether a file or folder of this name is hidden or a system's own: '.vscode', '._a.png', '@eaDir'."""
    return name.startswith('.') or name.lower() in RUBBISH


def is_no_class(name: str) -> bool:
    """Return whether a label says void or background; 'background' alone is this project's own class of label maps."""
    return _compared(name) in NO_CLASS and name != 'background'


def are_splits(names: Collection[str]) -> bool:
    """Return whether several names are those of parts of a data set."""
    return len(SPLITS & {*map(_compared, names)}) > 1
