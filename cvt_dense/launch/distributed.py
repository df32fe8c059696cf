"""Set up the processes of a run: gloo on CPUs, Slurm's variables, and an orderly end."""
import functools
import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from mmengine.config import Config

from ..errors import UserError

# torch is imported where it is used: a wrong command line is an error before that.


def destroy_process_group_at_exit(main: Callable[..., None]) -> Callable[..., None]:
    """Decorate a tool's ``main``, so that torchrun reports its error, and its process leaves the process group.

    Left to Python's shutdown, gloo's threads sometimes end the process with SIGABRT. Where ``main`` returns, all
    processes wait for each other, so that none closes connections that another one needs. After an error the process
    leaves at once, and the communication of the others fails instead of waiting.
    """

    @functools.wraps(main)
    def wrapper(*args: Any) -> None:
        run = main
        if 'TORCHELASTIC_ERROR_FILE' in os.environ:
            from torch.distributed.elastic.multiprocessing.errors import record
            run = record(main)
        status = None
        try:
            run(*args)
        except SystemExit as end:
            status = end.code
        except Exception:
            if not _process_group():
                raise
            traceback.print_exc()  # here, because the error's frames keep the model, and that the process group
            status = 1
        if group := _process_group():
            if status is None:
                group.barrier()
            if status is None or group.get_backend() == 'gloo':  # NCCL may wait for communication that has begun
                gc.collect()  # DDP and its Runner are cycles that keep the group, and its threads, alive
                group.destroy_process_group()
        if status is not None:
            sys.exit(status)

    return wrapper


def _process_group() -> Any:
    """Return ``torch.distributed`` if this process is in a process group; a tool that refused to start has no torch."""
    dist = sys.modules.get('torch.distributed')
    return dist if dist and dist.is_initialized() else None


def on_first_process(decide: Callable[..., Any], *args: Any) -> Any:
    """Return in all processes what ``decide(*args)`` returns in the first one.

    Raises:
        UserError: ``decide`` raises it; then it is raised in all processes.
    """
    from mmengine.dist import broadcast_object_list, is_main_process
    answer: list[Any] = [None]
    if is_main_process():
        try:
            answer = [decide(*args)]
        except UserError as error:
            answer = [error]
    broadcast_object_list(answer)
    if isinstance(answer[0], UserError):
        raise answer[0]
    return answer[0]


def setup_distributed(launcher: str, cfg: Config) -> None:
    """Create the process group of a run under a launcher; MMEngine's Runner keeps a group that exists.

    With the variable ``DEVICE=cpu``, or with ``CUDA_VISIBLE_DEVICES`` set to nothing, processes run on CPUs. It then
    does what ``mmengine.dist.init_dist`` cannot, because that calls ``torch.cuda.set_device``: it creates a gloo group.

    Args:
        launcher: ``'none'``, ``'pytorch'`` (torchrun) or ``'slurm'`` (one task of srun per process).
        cfg: whole config, whose ``env_cfg.dist_cfg`` has arguments of ``mmengine.dist.init_dist``.

    Raises:
        UserError: PyTorch finds no GPU, and nothing says that the processes are to run on CPUs.
    """
    if launcher == 'none':
        return
    if os.environ.get('DEVICE') == 'cpu':
        os.environ['CUDA_VISIBLE_DEVICES'] = ''
    import torch
    if launcher == 'slurm':
        _environment_from_slurm(torch.cuda.device_count())
    if torch.cuda.is_available():
        from mmengine.dist import init_dist
        if not torch.distributed.is_initialized():
            init_dist(launcher, **((cfg.get('env_cfg') or {}).get('dist_cfg') or {}))
        return
    if os.environ.get('CUDA_VISIBLE_DEVICES') != '':
        raise UserError(f'--launcher {launcher}: PyTorch {torch.__version__} finds no GPU. Compare nvidia-smi with the '
                        'CUDA of this PyTorch, or set DEVICE=cpu to run on CPUs.')
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group('gloo')


def _environment_from_slurm(gpus: int) -> None:
    """Set torch.distributed's variables from srun's.

    A task takes the GPU of its number on the host where every task sees the host's GPUs (``--gres=gpu:8``), and the
    first where srun shows it a GPU of its own, as with ``--gpus-per-task=1``. The port depends on the job and its step,
    because MMEngine's fixed 29500 makes two of them on one host collide.

    Args:
        gpus: number of GPUs that the task can see.
    """
    local_rank = int(os.environ['SLURM_LOCALID'])
    local_rank = str(local_rank % gpus if gpus else local_rank)
    os.environ.update(RANK=os.environ['SLURM_PROCID'], WORLD_SIZE=os.environ['SLURM_NTASKS'], LOCAL_RANK=local_rank,
                      SLURM_LOCALID=local_rank)  # which MMEngine reads
    job, step = int(os.environ['SLURM_JOB_ID']), int(os.environ.get('SLURM_STEP_ID', 0))
    os.environ.setdefault('MASTER_PORT', str(20000 + (job + 1000 * step) % 20000))
    if 'MASTER_ADDR' not in os.environ:
        hosts = subprocess.run(['scontrol', 'show', 'hostnames', os.environ['SLURM_NODELIST']], text=True,
                               capture_output=True, check=True)
        os.environ['MASTER_ADDR'] = hosts.stdout.split()[0]
