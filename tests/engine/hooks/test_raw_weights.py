"""The raw weights beside averaged ones: kept from the file for a test, not through a resumed training."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.model import BaseModel, BaseTTAModel
from torch import nn

from cvt_dense.engine.hooks.raw_weights import RawWeightsHook


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, inputs, mode):
        return [self.layer(inputs).item()]


class Views(BaseTTAModel):
    def merge_preds(self, data_samples_list):
        return [max(views) for views in data_samples_list]

    def test_step(self, data):
        return self.merge_preds([[self.module.test_step(dict(inputs=view))[0] for view in data['inputs']]])


class Evaluator:
    def __init__(self):
        self.seen = []

    def process(self, data_samples, data_batch):
        self.seen += data_samples

    def evaluate(self, size):
        return dict(value=self.seen)


@pytest.mark.parametrize('tta', [False, True])
def test_a_test_evaluates_the_raw_weights_of_the_file(tta):
    averaged, raw = Model(), Model()
    loop = SimpleNamespace(fp16=False, evaluator=Evaluator(), dataloader=SimpleNamespace(dataset=[0]))
    runner = SimpleNamespace(optim_wrapper=None, model=Views(averaged) if tta else averaged, test_loop=loop)
    hook, metrics = RawWeightsHook(), {}
    hook.after_load_checkpoint(runner, dict(ema_state_dict={
        f'module.{key}': value for key, value in raw.state_dict().items()}))
    hook.before_test_epoch(runner)
    views = [torch.tensor([1.]), torch.tensor([2.])]
    hook.after_test_iter(runner, 0, dict(inputs=views if tta else views[0]))
    hook.after_test_epoch(runner, metrics)
    expected = [raw.layer(view).item() for view in views]
    assert metrics == {'raw/value': [max(expected)] if tta else expected[:1]}


def test_a_resumed_training_does_not_keep_them():
    hook = RawWeightsHook()
    hook.after_load_checkpoint(SimpleNamespace(optim_wrapper=object()), dict(ema_state_dict={}))
    assert hook.raw_state is None
