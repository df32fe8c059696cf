"""The commands: one module each, with ``main(argv)``.

    cvt-train mine.py                                                             as python tools/train.py mine.py
    torchrun --nproc-per-node 8 $(command -v cvt-train) mine.py --launcher pytorch
"""
