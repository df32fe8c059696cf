"""Runs the command cvt-test."""
from cvt_dense.cli.test import main

if __name__ == '__main__':
    raise SystemExit(main())
