"""Runs the command cvt-train."""
from cvt_dense.cli.train import main

if __name__ == '__main__':
    raise SystemExit(main())
