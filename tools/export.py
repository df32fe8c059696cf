"""Runs the command cvt-export."""
import sys

from cvt_dense.cli.export import main

if __name__ == '__main__':
    sys.exit(main())
