"""Runs the command cvt-get-flops."""
from cvt_dense.cli.get_flops import main

if __name__ == '__main__':
    raise SystemExit(main())
