"""Runs the command cvt-test."""
import sys

from cvt_dense.cli.test import main

if __name__ == '__main__':
    sys.exit(main())
