"""Run a command as a module: ``torchrun -m cvt_dense.cli train CONFIG --launcher pytorch``."""
import sys
from importlib import import_module

if __name__ == '__main__':
    sys.exit(import_module(f'cvt_dense.cli.{sys.argv.pop(1)}').main())
