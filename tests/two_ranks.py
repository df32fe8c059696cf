"""Run a script in two processes as torchrun starts them: ``two_ranks.py SCRIPT FLAGS``, where SCRIPT has --launcher.

The tests of torchrun itself use tools/dist_train.sh; the others fork, so that no process imports PyTorch again.
"""
import multiprocessing
import os
import signal
import sys
import time

from forked import free_port, run_as_main


def run_rank(rank: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    run_as_main([*sys.argv[1:], '--launcher', 'pytorch'])


if __name__ == '__main__':
    os.environ.update(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=free_port())
    ranks = [multiprocessing.get_context('fork').Process(target=run_rank, args=(rank, )) for rank in range(2)]
    for rank in ranks:
        rank.start()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a signal to the group is for the ranks
    while any(rank.exitcode is None for rank in ranks) and not any(rank.exitcode for rank in ranks):
        time.sleep(0.02)
    for rank in ranks:
        rank.kill()  # as torchrun ends the other process when one fails
    sys.exit(max(abs(rank.exitcode or 0) for rank in ranks))
