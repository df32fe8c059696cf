"""Runs the command cvt-convert-checkpoint."""
from cvt_dense.cli.convert_checkpoint import main

if __name__ == '__main__':
    raise SystemExit(main())
