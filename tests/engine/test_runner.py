"""What our Runner adds to MMEngine's: mistakes that only a model or a schedule in iterations shows."""
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS

from cvt_dense.engine.runner import CvTRunner


@MODELS.register_module()
class PooledAndNormalised(BaseModel):

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)

    def forward(self, inputs, mode):
        return dict(loss=self.norm(torch.stack(inputs).mean((2, 3), keepdim=True)).sum())


@DATASETS.register_module()
class FourImages(torch.utils.data.Dataset):

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return dict(inputs=torch.zeros(3, 8, 8))


def test_train_returns_the_model(tmp_path):
    runner = CvTRunner.from_cfg(Config(dict(
        model=dict(type='PooledAndNormalised'),
        work_dir=str(tmp_path),
        train_dataloader=dict(
            dataset=dict(type='FourImages'), sampler=dict(type='DefaultSampler', shuffle=False), batch_size=2,
            collate_fn=dict(type='pseudo_collate')),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        param_scheduler=dict(type='LinearLR', start_factor=0.1, end=1, convert_to_iter_based=True),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        experiment_name=tmp_path.name)))
    assert runner.train() is runner.model
