from pathlib import Path

import torch.nn.functional as F
from mmengine.hooks import Hook
from torch import Tensor, nn
from torchvision.transforms.v2 import RandomRotation

from cvt_dense.errors import UserError
from cvt_dense.launch.built import Built
from cvt_dense.models.attention import ConvAttention
from cvt_dense.pretraining import ImageClassifier, ImageDataset
from cvt_dense.registry import DATASETS, HOOKS, MODELS


@MODELS.register_module()
class CosineAttention(ConvAttention):
    """Attention by the angle between queries and keys."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: tuple[int, int] | None) -> Tensor:
        """Return what each query of (B, [1 +] H * W, C) attends to; the CLS token comes first, if there is one."""
        q, k = (F.normalize(x.unflatten(2, (self.num_heads, -1)), dim=-1).flatten(2) for x in (q, k))
        return super().attend(q, k, v, hw_shape)


@MODELS.register_module()
class MLPClassifier(ImageClassifier):
    """A classifier whose head has a hidden layer."""

    def __init__(self, *args, hidden_dims: int = 256, **kwargs):
        super().__init__(*args, **kwargs)
        channels = self.head.in_features
        self.head = nn.Sequential(nn.Linear(channels, hidden_dims), nn.GELU(), nn.Linear(hidden_dims, self.num_classes))


@DATASETS.register_module()
class NamedImages(ImageDataset):
    """PNG files whose names begin with their class, such as cat_001.png, turned by up to 15 degrees in training."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        if not self.test_mode:
            self.pipeline.transforms.insert(0, RandomRotation(15))  # takes and returns a PIL image

    def load_data_list(self) -> list[dict]:
        paths = sorted(Path(self.data_prefix['img_path']).glob('*.png'))
        names = [path.stem.split('_')[0] for path in paths]
        self.classes = tuple(sorted(set(names)))
        return [dict(img_path=str(path), label=self.classes.index(name)) for path, name in zip(paths, names)]


@HOOKS.register_module()
class CountImagesHook(Hook):
    """Logs how many images the network has seen."""

    def after_train_epoch(self, runner) -> None:
        images = runner.iter * runner.train_dataloader.batch_sampler.batch_size * runner.world_size
        runner.logger.info(f'{images} images seen')


def check_epochs(built: Built) -> None:
    """Refuse trainings of more than 1000 epochs."""
    if built.stage == 'train' and built.cfg.train_cfg.get('max_epochs', 0) > 1000:
        raise UserError(f'train_cfg.max_epochs={built.cfg.train_cfg.max_epochs}: allowed are 1000.')
