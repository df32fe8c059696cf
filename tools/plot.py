"""Runs the command cvt-plot."""
from cvt_dense.cli.plot import main

if __name__ == '__main__':
    raise SystemExit(main())
