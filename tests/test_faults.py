"""``PYTHONPATH=. python tests/test_faults.py 20`` is what was once written down for tests/engine/test_faults.py."""
import runpy
from pathlib import Path

if __name__ == '__main__':
    runpy.run_path(str(Path(__file__).parent / 'engine' / 'test_faults.py'), run_name='__main__')
