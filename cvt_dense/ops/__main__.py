"""Place mmcv/_ext.py, which takes mmcv's operators from cvt_dense.ops: python -m cvt_dense.ops."""
import sys
from importlib.util import find_spec
from pathlib import Path

CONTENT = '''"""Operators of mmcv in PyTorch; `python -m cvt_dense.ops` wrote this file."""
from cvt_dense.ops import operator as __getattr__
'''


def main() -> None:
    """Write the file, unless mmcv is missing or has compiled operators."""
    spec = find_spec('mmcv')
    if spec is None:
        sys.exit('mmcv is not installed: install onedl-mmcv (or mmcv) first.')
    folder = Path(spec.origin).parent
    if list(folder.glob('_ext.*.so')) + list(folder.glob('_ext.*.pyd')):
        print(f'{folder} has compiled operators, which stay in use.')
        return
    (folder / '_ext.py').write_text(CONTENT)
    print(f'mmcv takes its operators from cvt_dense.ops now ({folder / "_ext.py"}).')


if __name__ == '__main__':
    main()
