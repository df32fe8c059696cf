"""Runs the command cvt-train."""
import sys

from cvt_dense.cli.train import main

if __name__ == '__main__':
    sys.exit(main())
