"""Runs the command cvt-attention."""
import sys

from cvt_dense.cli.attention import main

if __name__ == '__main__':
    sys.exit(main())
