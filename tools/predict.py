"""Runs the command cvt-predict."""
import sys

from cvt_dense.cli.predict import main

if __name__ == '__main__':
    sys.exit(main())
