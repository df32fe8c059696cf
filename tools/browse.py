"""Runs the command cvt-browse."""
import sys

from cvt_dense.cli.browse import main

if __name__ == '__main__':
    sys.exit(main())
