"""Messages of a resumed run about settings without effect. Summary at a run's end: tests/launch/test_work_dir.py."""
import re

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.runner import Runner

import cvt_dense  # noqa: F401

STEP = dict(type='StepLR', step_size=1, gamma=0.1, end=10, by_epoch=False)


@MODELS.register_module()
class OneWeight(BaseModel):

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, mode):
        return dict(loss=self.weight.sum())


@DATASETS.register_module()
class Zeros(torch.utils.data.Dataset):

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return dict(inputs=torch.zeros(1))


def train(folder, iterations, resume=False, schedule=None, **optimizer):
    """Trains, or goes on; returns the log file's text and the learning rate at the end."""
    runner = Runner.from_cfg(Config(dict(
        model=dict(type='OneWeight'),
        work_dir=str(folder),
        train_dataloader=dict(dataset=dict(type='Zeros'), sampler=dict(type='InfiniteSampler'), batch_size=1),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=iterations),
        param_scheduler=schedule,
        optim_wrapper=dict(optimizer={**dict(type='SGD', lr=0.1, momentum=0.9), **optimizer}),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=1)),
        custom_hooks=[dict(type='cvt_dense.SummaryHook')],
        resume=resume,
        experiment_name=f'{folder.name}_{iterations}')))
    runner.train()
    with open(runner.logger.log_file) as file:
        return file.read(), runner.optim_wrapper.param_groups[0]['lr']


@pytest.mark.parametrize('before, after, optimizer, ignored', [
    (None, None, {}, None),
    (None, None, dict(lr=0.3), 'optim_wrapper.optimizer.lr=0.3 (it stays 0.1)'),
    (None, None, dict(lr=0.3, momentum=0.5),
     'optim_wrapper.optimizer.lr=0.3 (it stays 0.1), optim_wrapper.optimizer.momentum=0.5 (it stays 0.9)'),
    (STEP, STEP, dict(lr=0.3), 'optim_wrapper.optimizer.lr=0.3 (it stays 0.1)'),
    (STEP, dict(STEP, gamma=0.5), {}, 'param_scheduler'),
    # Without a schedule from now on, what the schedule has come to stays.
    (STEP, None, {}, 'optim_wrapper.optimizer.lr=0.1 (it stays 0.001)')])
def test_what_has_no_effect_is_named(tmp_path, before, after, optimizer, ignored):
    torch.manual_seed(0)
    _, saved = train(tmp_path, 2, schedule=before)
    log, now = train(tmp_path, 3, resume=True, schedule=after, **optimizer)
    named = re.findall(r'so these settings have no effect: (.*?)\. To train on', log)
    assert named == ([] if ignored is None else [ignored])
    assert now == pytest.approx(saved * (0.1 if after else 1.))
