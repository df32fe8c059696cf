import pytest
import torch
from mmengine.config import Config
from mmengine.registry import OPTIMIZERS
from torch import nn

from cvt_dense.engine.muon import Muon, implementation, orthogonalize
from cvt_dense.errors import UserError
from cvt_dense.launch.build import adapt_to_machine


def test_a_step_on_a_cpu_is_timms_in_float32():
    """The update is the Newton-Schulz iteration to 1e-5, in bfloat16 to 1e-2. timm itself stays as it is."""
    cfg = Config(dict(optim_wrapper=dict(optimizer=dict(type='timm.optim.Muon'))))
    assert adapt_to_machine(cfg) == ['Muon in float32, without a GPU']
    assert OPTIMIZERS.get(cfg.optim_wrapper.optimizer.type) is Muon
    cfg.optim_wrapper.optimizer.type = 'AdamV'
    with pytest.raises(UserError, match='AdamV'):
        adapt_to_machine(cfg)
    torch.manual_seed(0)
    start, gradient = torch.randn(8, 32), torch.randn(8, 32)
    weight = nn.Parameter(start.clone())
    weight.grad = gradient
    Muon([weight], lr=1., ns_coefficients='original', adjust_lr_fn=None).step()
    wanted = gradient.double() / gradient.double().norm()
    for _ in range(5):
        gram = wanted @ wanted.T
        wanted = 3.4445 * wanted + (-4.7750 * gram + 2.0315 * gram @ gram) @ wanted
    torch.testing.assert_close(start - weight.detach(), wanted.float(), rtol=0, atol=1e-5)
    assert implementation.zeropower_via_newtonschulz is orthogonalize
