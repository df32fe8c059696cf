"""Runs the command cvt-demo."""
import sys

from cvt_dense.cli.demo import main

if __name__ == '__main__':
    sys.exit(main())
