"""The commands: one module each, with ``main(argv)``.

    cvt-train mine.py                                                             as python tools/train.py mine.py
    torchrun --nproc-per-node 8 $(command -v cvt-train) mine.py --launcher pytorch
"""
import sys

if sys.argv[0] == '-m':  # its modules define main and do not call it, so nothing would happen
    sys.exit(f'python -m {__name__}.NAME does nothing: give the command, such as cvt-train, or a file of tools/.')
