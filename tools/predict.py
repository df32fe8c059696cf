"""Runs the command cvt-predict."""
from cvt_dense.cli.predict import main

if __name__ == '__main__':
    raise SystemExit(main())
