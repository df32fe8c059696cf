"""Runs the command cvt-convert-checkpoint."""
import sys

from cvt_dense.cli.convert_checkpoint import main

if __name__ == '__main__':
    sys.exit(main())
