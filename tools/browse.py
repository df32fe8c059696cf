"""Runs the command cvt-browse."""
from cvt_dense.cli.browse import main

if __name__ == '__main__':
    raise SystemExit(main())
