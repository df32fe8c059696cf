"""Runs the command cvt-get-flops."""
import sys

from cvt_dense.cli.get_flops import main

if __name__ == '__main__':
    sys.exit(main())
