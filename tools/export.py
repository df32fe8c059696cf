"""Runs the command cvt-export."""
from cvt_dense.cli.export import main

if __name__ == '__main__':
    raise SystemExit(main())
