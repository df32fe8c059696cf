"""Evaluations compute float32 in float32; training computes as it is set."""
import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from tiny_training import ROOT

from cvt_dense.engine import FullPrecisionHook


@pytest.fixture
def settings():
    """What says how float32 is computed: of convolutions and of matrix products."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    yield lambda: (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())
    torch.backends.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])


class Noting(BaseModel):

    def __init__(self, settings):
        super().__init__()
        self.weight, self.settings, self.seen = torch.nn.Parameter(torch.zeros(1)), settings, []

    def forward(self, inputs, mode):
        self.seen.append((mode, self.settings()))
        return dict(loss=self.weight.sum()) if mode == 'loss' else [dict()]


class Metric:

    def __init__(self):
        self.dataset_meta = None

    def process(self, data_batch, data_samples):
        pass

    def evaluate(self, size):
        return {}


@pytest.mark.parametrize('tf32', [False, True])
def test_evaluations_only_and_unless_asked_for(tmp_path, settings, tf32):
    from mmengine.evaluator import Evaluator
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision('high')
    model, loader = Noting(settings), torch.utils.data.DataLoader([dict(inputs=0.)] * 2)
    runner = Runner(model, str(tmp_path), loader, loader, loader, dict(by_epoch=True, max_epochs=2), dict(), dict(),
                    optim_wrapper=OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.)),
                    val_evaluator=Evaluator([Metric()]), test_evaluator=Evaluator([Metric()]),
                    custom_hooks=[FullPrecisionHook(tf32)], default_hooks=dict(checkpoint=None),
                    experiment_name=f'tf32={tf32}')
    runner.train()
    runner.test()
    asked, full = (True, 'high'), (False, 'highest')
    assert settings() == asked
    assert [mode for mode, _ in model.seen] == ['loss', 'loss', 'predict', 'predict'] * 2 + ['predict'] * 2
    assert all(found == (asked if tf32 or mode == 'loss' else full) for mode, found in model.seen)


@pytest.mark.parametrize('name', ['cvt13_in1k', 'maskrcnn_cvt13_coco', 'upernet_cvt13_ade20k'])
def test_recipes_have_it(name):
    hook = Config.fromfile(ROOT / f'configs/{name}.py').default_hooks.full_precision
    assert hook == dict(type='cvt_dense.FullPrecisionHook')
