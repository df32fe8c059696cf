"""Runs the command cvt-publish."""
from cvt_dense.cli.publish import main

if __name__ == '__main__':
    raise SystemExit(main())
