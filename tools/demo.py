"""Runs cvt_dense.cli.demo."""
from cvt_dense.cli.demo import main

if __name__ == '__main__':
    raise SystemExit(main())
