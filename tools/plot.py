"""Runs the command cvt-plot."""
import sys

from cvt_dense.cli.plot import main

if __name__ == '__main__':
    sys.exit(main())
