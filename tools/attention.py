"""Runs the command cvt-attention."""
from cvt_dense.cli.attention import main

if __name__ == '__main__':
    raise SystemExit(main())
