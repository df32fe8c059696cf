import torch
from mmengine.config import Config
from mmengine.registry import OPTIMIZERS
from torch import nn

from cvt_dense.launch.build import adapt_to_machine


def test_a_step_on_a_cpu_is_in_float32():
    """The update is the Newton-Schulz iteration in float64 to 1e-5; in bfloat16 it is 1e-2 from it."""
    cfg = Config(dict(optim_wrapper=dict(optimizer=dict(type='timm.optim.Muon', lr=1.))))
    assert adapt_to_machine(cfg) == ['Muon in float32, without a GPU']
    start, gradient = torch.randn(8, 32), torch.randn(8, 32)
    weight = nn.Parameter(start.clone())
    weight.grad = gradient
    options = dict(cfg.optim_wrapper.optimizer, ns_coefficients='original', adjust_lr_fn=None)
    OPTIMIZERS.build(dict(options, params=[weight])).step()
    wanted = gradient.double() / gradient.double().norm()
    for _ in range(5):
        gram = wanted @ wanted.T
        wanted = 3.4445 * wanted + (-4.7750 * gram + 2.0315 * gram @ gram) @ wanted
    torch.testing.assert_close(start - weight.detach(), wanted.float(), rtol=0, atol=1e-5)
