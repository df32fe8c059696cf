"""Processes and devices of a run: gloo without CUDA, and Slurm's variables."""
import atexit
import os
import subprocess
import warnings

import torch


def setup_distributed(cfg, launcher: str) -> None:
    """Prepares ``cfg`` and the process for MMEngine's Runner under a launcher; call it before that is built.

    With CUDA it only checks that every process has a GPU of its own. Without CUDA it does what
    ``mmengine.dist.init_dist`` cannot, because that calls ``torch.cuda.set_device``: it creates a gloo
    process group (MMEngine keeps a group that exists), tells DDP to leave the model where it is, and
    replaces SyncBN, which has no CPU kernel, by BN, as MMEngine does itself in a single process.

    Args:
        cfg (mmengine.Config): changed in place: ``model_wrapper_cfg`` (its other settings are kept) and the
            types of norm layers.
        launcher: ``'none'``, ``'pytorch'`` (torchrun) or ``'slurm'`` (one task of srun per process).

    Raises:
        ValueError: if the launcher's variables are missing or there are more processes than GPUs.
    """
    if launcher == 'none':
        return
    if launcher == 'slurm':
        _environment_from_slurm()
    if 'RANK' not in os.environ:
        raise ValueError(
            f'--launcher {launcher} was given, but the environment has no RANK: this process was not '
            'started by torchrun. Use tools/dist_train.sh CONFIG GPUS (or tools/slurm_train.sh), or leave '
            '--launcher out.')
    if torch.cuda.is_available():
        gpus, local_rank = torch.cuda.device_count(), int(os.environ['LOCAL_RANK'])
        if local_rank >= gpus:
            raise ValueError(
                f'Process {local_rank + 1} on this host has no GPU: only {gpus} can be seen here '
                f'(CUDA_VISIBLE_DEVICES={os.environ.get("CUDA_VISIBLE_DEVICES", "not set")}). Ask for at '
                f'most {gpus} processes per host.')
        return
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group('gloo')
        # Left to the interpreter's shutdown, gloo's threads sometimes end the process with SIGABRT.
        atexit.register(torch.distributed.destroy_process_group)
    wrapper = dict(
        broadcast_buffers=False, find_unused_parameters=cfg.get('find_unused_parameters', False))
    wrapper.update(cfg.get('model_wrapper_cfg') or {}, device_ids=None)
    cfg.model_wrapper_cfg = wrapper
    cfg.sync_bn = None
    if _replace_sync_bn(cfg.get('model')) and os.environ['RANK'] == '0':
        warnings.warn(
            'SyncBN has no CPU kernel and was replaced by BN: statistics are those of each process.')


def _environment_from_slurm() -> None:
    """Sets torch.distributed's variables from srun's.

    The port depends on the job, because MMEngine's fixed 29500 makes two jobs on one host collide.
    """
    try:
        job, rank, world_size, nodes = (
            os.environ[f'SLURM_{name}'] for name in ('JOB_ID', 'PROCID', 'NTASKS', 'NODELIST'))
    except KeyError as error:
        raise ValueError(
            f'--launcher slurm was given, but the environment has no {error}: this process was not started '
            'by srun. Use tools/slurm_train.sh, or leave --launcher out.') from None
    if 'MASTER_ADDR' not in os.environ:
        hosts = subprocess.run(
            ['scontrol', 'show', 'hostnames', nodes], text=True, capture_output=True, check=True)
        os.environ['MASTER_ADDR'] = hosts.stdout.split()[0]
    os.environ.setdefault('MASTER_PORT', str(20000 + int(job) % 20000))
    os.environ.update(RANK=rank, WORLD_SIZE=world_size, LOCAL_RANK=os.environ.get('SLURM_LOCALID', '0'))


def _replace_sync_bn(node) -> bool:
    """Turns every ``type='SyncBN'`` inside ``node`` into ``'BN'``; returns whether there was one."""
    if isinstance(node, dict):
        found = str(node.get('type')).split('.')[-1] in ('SyncBN', 'MMSyncBN')
        if found:
            node['type'] = 'BN'
        return any([_replace_sync_bn(child) for child in node.values()]) or found
    return isinstance(node, (list, tuple)) and any([_replace_sync_bn(child) for child in node])
