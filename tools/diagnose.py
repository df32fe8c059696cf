"""Runs the command cvt-diagnose."""
import sys

from cvt_dense.cli.diagnose import main

if __name__ == '__main__':
    sys.exit(main())
