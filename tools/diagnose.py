"""Runs the command cvt-diagnose."""
from cvt_dense.cli.diagnose import main

if __name__ == '__main__':
    raise SystemExit(main())
