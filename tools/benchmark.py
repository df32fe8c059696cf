"""Runs the command cvt-benchmark."""
import sys

from cvt_dense.cli.benchmark import main

if __name__ == '__main__':
    sys.exit(main())
