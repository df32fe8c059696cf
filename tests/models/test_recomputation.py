"""with_cp with every BatchNorm, torch.compile and two processes: the plain result, statistics moved once."""
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


def assert_equal(got, expected, atol=1e-6):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize('norm, kwargs', [
    ('BN', dict()), ('SyncBN', dict()), ('BN', dict(drop_rate=.1, drop_path_rate=.3)),
    ('BN', dict(attn_cfg=dict(type='cvt_dense.WindowedAttention', window_size=4)))], ids=str)
def test_equals_plain_and_counts_once(norm, kwargs):
    got = trained_once(True, norm, **kwargs)
    assert_equal(got, trained_once(False, **kwargs))
    assert [tensor.item() for tensor in got if tensor.dtype == torch.int64] == [1] * 6


def test_compiled():
    # Inductor takes minutes; what recomputes comes before it.
    assert_equal(trained_once(True, backend='aot_eager'), trained_once(False))


class Kernels(TorchDispatchMode):
    """Lists the attention kernels that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if 'scaled_dot_product' in function.overloadpacket.__name__:
            self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def saved_bytes(run) -> int:
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(sizes.values())


def test_keeps_less_and_does_not_repeat_attention():
    x, outs = torch.rand(2, 3, 128, 128), {}

    def run(with_cp):
        outs[with_cp] = CvT(ARCH, with_cp=with_cp)(x)

    assert saved_bytes(lambda: run(True)) < .5 * saved_bytes(lambda: run(False))
    with Kernels() as kernels:
        sum(y.mean() for y in outs[True]).backward()
    assert len(kernels.names) == 2 and all(name.endswith('backward') for name in kernels.names)


def test_compiled_keeps_less():
    with_cp, plain = (saved_bytes(lambda: trained_once(with_cp, backend='aot_eager_decomp_partition'))
                      for with_cp in (True, False))
    assert with_cp < .7 * plain


TWO_PROCESSES = """
import torch
from cvt_dense.models import CvT
torch.distributed.init_process_group('gloo')
rank = torch.distributed.get_rank()
results = []
for with_cp in (False, True):
    torch.manual_seed(1)
    model = CvT(dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3]), with_cp=with_cp).train()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    torch.manual_seed(10 + rank)
    sum((y**2).mean() for y in wrapped(torch.rand(2, 3, 40, 48))).backward()
    results.append([*(p.grad for p in model.parameters()), *model.buffers()])
for a, b in zip(*results, strict=True):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
gathered = [torch.empty_like(results[1][0]) for _ in range(2)]
torch.distributed.all_gather(gathered, results[1][0])
assert torch.equal(*gathered) and gathered[0].any()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
print('equal', flush=True)
"""


def test_two_processes(run_tool, tmp_path):
    """BN. SyncBN has no kernels for CPUs once there are several processes."""
    script = tmp_path / 'two.py'
    script.write_text(TWO_PROCESSES)
    out = run_tool('-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', script, OMP_NUM_THREADS='1',
                   PYTHONPATH='.').stdout
    assert out.count('equal') == 2
