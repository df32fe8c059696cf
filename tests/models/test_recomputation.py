"""with_cp with every BatchNorm, torch.compile and two processes: the plain result, statistics moved once."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cvt_dense.models import CvT

ARCH = dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3])


def trained_once(with_cp, norm='BN', backend=None, **kwargs):
    """Outputs, gradients and buffers after one step in training."""
    torch.manual_seed(1)
    model = CvT(ARCH, with_cp=with_cp, norm_cfg=dict(type=norm), **kwargs).train()
    forward = torch.compile(model, backend=backend, fullgraph=True) if backend else model
    outs = forward(torch.rand(2, 3, 40, 48))
    sum((y**2).mean() for y in outs).backward()
    return [*outs, *(p.grad for p in model.parameters()), *model.buffers()]


def assert_equal(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


@pytest.fixture
def mm_sync_bn(monkeypatch):
    """Lets one process on a CPU run MMSyncBN: mmcv's kernels are CUDA's; alone they compute batch_norm."""
    sync_bn = pytest.importorskip('mmcv.ops.sync_bn')

    class OnCPU:

        @staticmethod
        def apply(x, mean, var, weight, bias, momentum, eps, *group):
            return F.batch_norm(x, mean, var, weight, bias, True, momentum, eps)

    monkeypatch.setattr(sync_bn, 'SyncBatchNormFunction', OnCPU)
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield sync_bn.SyncBatchNorm
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize('norm', ['BN', 'SyncBN'])
def test_equals_plain_and_counts_once(norm):
    got, expected = trained_once(True, norm), trained_once(False)
    assert_equal(got, expected)
    counters = [tensor.item() for tensor in got if tensor.dtype == torch.int64]
    assert counters == [1] * 6


def test_mm_sync_bn(mm_sync_bn):
    """It derives from no _BatchNorm of PyTorch's."""
    plain, recomputed = trained_once(False, 'MMSyncBN'), trained_once(True, 'MMSyncBN')
    assert_equal(recomputed, plain)
    assert [tensor.item() for tensor in recomputed if tensor.dtype == torch.int64] == [1] * 6

    model = CvT(ARCH, norm_cfg=dict(type='MMSyncBN'), norm_eval=True).train()
    norms = [m for m in model.modules() if isinstance(m, mm_sync_bn)]
    assert len(norms) == 6 and not any(m.training for m in norms)
    with torch.no_grad():
        for norm in norms:
            nn.init.normal_(norm.running_mean)
        x = torch.rand(2, 3, 40, 48)
        expected = model.eval()(x)
        got = model.fuse()(x)
    assert not any(isinstance(m, mm_sync_bn) for m in model.modules())
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize('norm', ['BN', 'SyncBN'])
def test_compiled(norm):
    # Inductor takes minutes on two cores; what failed, and what recomputes, comes before it.
    assert_equal(trained_once(True, norm, 'aot_eager'), trained_once(False))


def test_compiled_keeps_less():
    kept = []
    for with_cp in (False, True):
        sizes = {}

        def pack(tensor):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            trained_once(with_cp, backend='aot_eager_decomp_partition')
        kept.append(sum(sizes.values()))
    assert kept[1] < .7 * kept[0]


TWO_PROCESSES = """
import sys
import torch
from cvt_dense.models import CvT
torch.distributed.init_process_group('gloo')
rank = torch.distributed.get_rank()
results = []
for with_cp, backend in ((False, None), (True, None), (True, 'aot_eager')):
    torch.manual_seed(1)
    model = CvT(dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3]), with_cp=with_cp).train()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    if backend:
        wrapped = torch.compile(wrapped, backend=backend)
    torch.manual_seed(10 + rank)
    sum((y**2).mean() for y in wrapped(torch.rand(2, 3, 40, 48))).backward()
    results.append([*(p.grad for p in model.parameters()), *model.buffers()])
for got in results[1:]:
    for a, b in zip(got, results[0], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
gathered = [torch.empty_like(results[1][0]) for _ in range(2)]
torch.distributed.all_gather(gathered, results[1][0])
assert torch.equal(*gathered) and gathered[0].any()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
print('equal', flush=True)
"""


def test_two_processes(run_tool, tmp_path):
    """BN. SyncBN and MMSyncBN have no kernels for CPUs once there are several processes."""
    script = tmp_path / 'two.py'
    script.write_text(TWO_PROCESSES)
    out = run_tool('-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', script, OMP_NUM_THREADS='1',
                   PYTHONPATH='.').stdout
    assert out.count('equal') == 2
