"""with_cp with BN, SyncBN and DDP: the plain result, statistics moved once."""
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cvt_dense.models import CvT, attention, checkpointing

ARCH = dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3])


def trained_once(with_cp, norm='BN', **kwargs):
    """Outputs, gradients and buffers after one step in training."""
    torch.manual_seed(1)
    model = CvT(ARCH, with_cp=with_cp, norm_cfg=dict(type=norm), **kwargs).train()
    outs = model(torch.rand(2, 3, 40, 48))
    sum((y**3).sum() for y in outs).backward()  # that of squares is 0 after LayerNorm
    return [*outs, *(p.grad for p in model.parameters()), *model.buffers()]


def assert_equal(got, expected, atol=1e-6):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize('norm, kwargs', [
    ('BN', dict(layer_scale_init_value=1., pos_embed=[4, None])), ('SyncBN', dict()),
    ('BN', dict(drop_rate=.1, drop_path_rate=.3)),
    ('BN', dict(attn_cfg=dict(type='cvt_dense.WindowedAttention', window_size=4)))], ids=str)
def test_equals_plain_and_counts_once(norm, kwargs):
    got = trained_once(True, norm, **kwargs)
    assert_equal(got, trained_once(False, **kwargs))
    assert [tensor.item() for tensor in got if tensor.dtype == torch.int64] == [1] * 6


def test_dropout_inside_of_the_kernel(monkeypatch):
    """A kernel that draws random numbers, as CUDA's do for dropout: the numbers of other layers are not shifted."""
    plain, noise = attention.ConvAttention.attend, torch.library.custom_op(
        'tests::noise', torch.rand_like, mutates_args=(), schema='(Tensor x) -> Tensor')

    def drawing(module, q, k, v, hw_shape):
        rate, module.attn_drop_rate = module.attn_drop_rate, 0.
        out = plain(module, q, k, v, hw_shape)
        module.attn_drop_rate = rate
        return out * noise(q.detach())

    monkeypatch.setattr(attention.ConvAttention, 'attend', drawing)
    monkeypatch.setattr(checkpointing, 'ATTENTION_KERNELS', [torch.ops.tests.noise.default])
    assert_equal(*(trained_once(with_cp, attn_drop_rate=.1, drop_rate=.1) for with_cp in (True, False)))


def saved_bytes(run) -> int:
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(sizes.values())


def test_keeps_less_and_does_not_repeat_attention():
    x, outs, kernels = torch.rand(2, 3, 128, 128), {}, []

    def run(with_cp):
        outs[with_cp] = CvT(ARCH, with_cp=with_cp)(x)

    class Kernels(TorchDispatchMode):

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kernels.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    assert saved_bytes(lambda: run(True)) < .5 * saved_bytes(lambda: run(False))
    with Kernels():
        sum(y.mean() for y in outs[True]).backward()
    attention = [name for name in kernels if 'scaled_dot_product' in name]
    assert len(attention) == 2 and all(name.endswith('backward') for name in attention)


@pytest.fixture
def process_group():
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_ddp_without_unused_parameters(process_group):
    """It raises at the second step if a parameter had no gradient in the first; the gradients are the plain ones."""
    torch.manual_seed(1)
    attn_cfg = dict(type='cvt_dense.WindowedAttention', window_size=4)
    plain, wrapped = (CvT(ARCH, attn_cfg=attn_cfg, norm_eval=True, with_cp=with_cp) for with_cp in (False, True))
    wrapped.load_state_dict(plain.state_dict())
    for model in (plain, torch.nn.parallel.DistributedDataParallel(wrapped)):
        for step in range(2):
            torch.manual_seed(step)
            sum(y.square().mean() for y in model(torch.rand(2, 3, 49, 90))).backward()
    assert_equal((p.grad for p in wrapped.parameters()), (p.grad for p in plain.parameters()), 1e-5)
