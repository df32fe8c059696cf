"""Runs the command cvt-convert-data."""
import sys

from cvt_dense.cli.convert_data import main

if __name__ == '__main__':
    sys.exit(main())
