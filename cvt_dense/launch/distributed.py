"""Set up the processes and devices of a run: gloo without CUDA, Slurm's variables, and an orderly end."""
import faulthandler
import functools
import gc
import os
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ..errors import UserError

EXIT_TIMEOUT = 300.  # seconds that a process at its end waits for the others, which may still write a checkpoint
LEAVING = 20.  # seconds that a process may take to leave the group; less than the 30 after which torchrun kills
# torch is imported where it is used: a wrong command line is an error before that.


def destroy_process_group_at_exit(main: Callable[..., None]) -> Callable[..., None]:
    """Decorate a tool's ``main``, so that its process leaves the process group before Python shuts down.

    Left to the shutdown, gloo's threads sometimes end the process with SIGABRT. Where ``main`` returns or exits
    with code 0, all processes wait for each other, at most ``EXIT_TIMEOUT`` seconds, so that none has its connections
    closed while it needs them. After an error the process leaves at once, and the others' communication fails instead
    of waiting. Under torchrun the error is noted before, so that torchrun prints the first failing process's traceback
    last.
    """

    @functools.wraps(main)
    def wrapper(*args: Any) -> None:
        faulthandler.enable()
        try:
            _recording_errors(main)(*args)
        except BaseException as error:
            chained: BaseException | None = error
            while chained is not None:  # its frames keep the model, and that the process group
                traceback.clear_frames(chained.__traceback__)
                chained = chained.__context__
            code = error.code if isinstance(error, SystemExit) else 1
            _leave_group(error if code else None)
            raise
        _leave_group(None)

    return wrapper


def _recording_errors(main: Callable[..., None]) -> Callable[..., None]:
    if 'TORCHELASTIC_ERROR_FILE' not in os.environ:
        return main
    from torch.distributed.elastic.multiprocessing.errors import record
    return record(main)


def _leave_group(error: BaseException | None) -> None:
    if 'torch' not in sys.modules:
        return
    import torch.distributed as dist
    if not dist.is_initialized():
        return
    if error is None:
        try:
            dist.barrier(async_op=True).wait(timedelta(seconds=EXIT_TIMEOUT))
        except RuntimeError as failure:
            warnings.warn(f'Another process ended before the run was complete: {failure}')
    elif 'TORCHELASTIC_ERROR_FILE' in os.environ:
        time.sleep(1.)  # torchrun notes errors by the second: those that follow in other processes come later
    gc.collect()  # DDP and its Runner are cycles that keep the group, and its threads, alive
    # Leaving waits for communication that has begun. After an error the other side may never take part in it.
    leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
    leaving.start()
    leaving.join(LEAVING)
    if leaving.is_alive():
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if error is None else 1)  # Python's shutdown would wait, or be ended by SIGABRT


def is_first_process() -> bool:
    """Return whether this process is the first, or the only one, of a run; known before a process group is there."""
    return os.environ.get('RANK', os.environ.get('SLURM_PROCID', '0')) == '0'


def setup_distributed(launcher: str, local_rank: int = 0) -> None:
    """Prepare the process for MMEngine's Runner under a launcher; call it before that is built.

    With CUDA it only checks that every process has a GPU of its own. Without CUDA it does what
    ``mmengine.dist.init_dist`` cannot, because that calls ``torch.cuda.set_device``: it creates a gloo
    process group; MMEngine keeps a group that exists.

    Args:
        launcher: ``'none'``, ``'pytorch'`` (torchrun) or ``'slurm'`` (one task of srun per process).
        local_rank: rank of the process on its host, where the environment does not set it.

    Raises:
        UserError: if the launcher's variables are missing or there are more processes than GPUs.
    """
    os.environ.setdefault('LOCAL_RANK', str(local_rank))
    if launcher == 'none':
        return
    import torch
    import torch.distributed as dist
    if launcher == 'slurm':
        _environment_from_slurm()
    if 'RANK' not in os.environ:
        raise UserError(
            f'--launcher {launcher} was given, but the environment has no RANK: this process was not '
            'started by torchrun. Use tools/dist_train.sh CONFIG GPUS (or tools/slurm_train.sh), or leave '
            '--launcher out.')
    if torch.cuda.is_available():
        gpus, local_rank = torch.cuda.device_count(), int(os.environ['LOCAL_RANK'])
        if local_rank >= gpus:
            raise UserError(
                f'Process {local_rank + 1} on this host has no GPU: only {gpus} can be seen here '
                f'(CUDA_VISIBLE_DEVICES={os.environ.get("CUDA_VISIBLE_DEVICES", "not set")}). Ask for at '
                f'most {gpus} processes per host.')
        return
    if not dist.is_initialized():
        dist.init_process_group('gloo')


def _environment_from_slurm() -> None:
    """Set torch.distributed's variables from srun's.

    The port depends on the job, because MMEngine's fixed 29500 makes two jobs on one host collide.
    """
    try:
        job, rank, world_size, nodes = (
            os.environ[f'SLURM_{name}'] for name in ('JOB_ID', 'PROCID', 'NTASKS', 'NODELIST'))
    except KeyError as error:
        raise UserError(
            f'--launcher slurm was given, but the environment has no {error}: this process was not started '
            'by srun. Use tools/slurm_train.sh, or leave --launcher out.') from None
    if 'MASTER_ADDR' not in os.environ:
        hosts = subprocess.run(
            ['scontrol', 'show', 'hostnames', nodes], text=True, capture_output=True, check=True)
        os.environ['MASTER_ADDR'] = hosts.stdout.split()[0]
    os.environ.setdefault('MASTER_PORT', str(20000 + int(job) % 20000))
    import torch
    # MMEngine takes the GPU's number from SLURM_LOCALID.
    os.environ['SLURM_LOCALID'] = local_rank_of_slurm(os.environ, torch.cuda.device_count())
    os.environ.update(RANK=rank, WORLD_SIZE=world_size, LOCAL_RANK=os.environ['SLURM_LOCALID'])


def local_rank_of_slurm(variables: Mapping[str, str], gpus: int) -> str:
    """Return the number that a task's GPU has to the task.

    It is the task's number on its host where every task sees the host's GPUs (``--gres=gpu:8``), and 0 where srun shows
    each task a GPU of its own, as with ``--gpus-per-task=1`` or ``--gpu-bind=single:1``.

    Args:
        variables: the task's environment.
        gpus: number of GPUs that the task can see.
    """
    bound = 'SLURM_GPUS_PER_TASK' in variables or 'SLURM_GPU_BIND' in variables
    # If no variable tells of a binding, a task that sees one of the host's several GPUs has it to itself. On a host
    # with a single GPU, all tasks see the same one, and only the first task may take it.
    own = gpus == 1 and (bound or variables.get('SLURM_GPUS_ON_NODE') != '1')
    return '0' if own else variables.get('SLURM_LOCALID', '0')
