"""Runs the command cvt-publish."""
import sys

from cvt_dense.cli.publish import main

if __name__ == '__main__':
    sys.exit(main())
