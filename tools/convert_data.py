"""Runs the command cvt-convert-data."""
from cvt_dense.cli.convert_data import main

if __name__ == '__main__':
    raise SystemExit(main())
