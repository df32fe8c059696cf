"""Check that the images of a data set can be put into batches, and that a model can learn from them."""
import random
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_world_size
from torch import Tensor, nn

from ...config.nodes import type_name
from ...errors import UserError
from ...images import Header
from ...models.attention import has_statistics
from ...models.cvt import MIN_INPUT_SIZE

TRIED = 8  # images that go through a pipeline before the run


def check_loaders(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that each data loader has a batch.

    Raises:
        UserError: there are fewer images than one batch, and ``drop_last`` leaves the incomplete one out.
    """
    for stage, dataset in datasets.items():
        loader = cfg[f'{stage}_dataloader']
        size, images = loader.get('batch_size', 1), -(-len(dataset) // get_world_size())
        if loader.get('drop_last') and images < size and 'Infinite' not in type_name(loader.get('sampler')):
            raise UserError(f'{stage}_dataloader: batch_size={size} with drop_last=True, but there are {images} images '
                            f'for a process: not one batch. Set batch_size to {images} or less.')


def check_pipeline(dataset: Any, headers: dict[str, Header], cfg: Config, stage: str) -> None:
    """Send the smallest, the thinnest and some other images of a data set through its pipeline.

    Args:
        dataset: of MMDetection or MMSegmentation.
        headers: of its images.
        cfg: whole config.
        stage: 'train', 'val' or 'test'.

    Raises:
        UserError: the pipeline fails, or makes an image that the network or a batch of the loader cannot take.
    """
    numbers = {dataset.get_data_info(i).get('img_path'): i for i in range(len(dataset))}
    sides = {path: headers[path].size for path in numbers if path in headers}
    if not sides:
        return
    tried = {min(sides, key=lambda path: min(sides[path])): None,
             max(sides, key=lambda path: max(sides[path]) / min(sides[path])): None,
             **dict.fromkeys(random.Random(0).sample(sorted(sides), min(TRIED, len(sides))))}
    shapes = {}
    for path in tried:
        try:
            sample = dataset.pipeline(dataset.get_data_info(numbers[path]))
        except Exception as error:  # whatever a transform raises would end the run later
            raise UserError(f'{stage}_dataloader: the pipeline cannot prepare {path!r}: {type(error).__name__}: '
                            f'{error}') from error
        inputs = (sample or {}).get('inputs')
        if isinstance(inputs, Tensor):
            shapes[path] = tuple(inputs.shape)
    preprocessor, backbone = (cfg.model.get(name) or {} for name in ('data_preprocessor', 'backbone'))
    pads = stage == 'train' or preprocessor.get('pad_size_divisor') or preprocessor.get('test_cfg')
    for path, (channels, height, width) in shapes.items():
        wanted = backbone.get('in_channels', 3 if type_name(backbone) == 'CvT' else channels)
        if channels != wanted:
            raise UserError(f'{stage}_dataloader: {path!r} becomes an array of {channels} channels, and '
                            f'model.backbone.in_channels is {wanted}. Set it to {channels}.')
        if type_name(backbone) == 'CvT' and not pads and min(height, width) < MIN_INPUT_SIZE:
            raise UserError(f'{stage}_dataloader: the pipeline makes {height}x{width} pixels (height x width) of '
                            f'{path!r}, and CvT needs {MIN_INPUT_SIZE} on each side. Resize to a larger size '
                            '(image_size), or remove images as thin as this.')
    size = cfg[f'{stage}_dataloader'].get('batch_size', 1)
    if size > 1 and not pads and len(set(shapes.values())) > 1:
        raise UserError(f'{stage}_dataloader: batch_size={size}, but the images have different sizes after the '
                        f'pipeline, such as {sorted(set(shapes.values()))[:3]}. Set batch_size to 1.')


def check_batch_norm(cfg: Config, model: nn.Module, datasets: dict[str, Any]) -> None:
    """Check that no BatchNorm learns from one value, as of the pooled map of a batch of one image.

    Raises:
        UserError: a batch holds one image, and the model averages its map in front of a BatchNorm.
    """
    if 'train' not in datasets:
        return
    loader, processes = cfg.train_dataloader, get_world_size()
    size, images = loader.get('batch_size', 1), -(-len(datasets['train']) // processes)
    whole = loader.get('drop_last') or 'Infinite' in type_name(loader.get('sampler'))
    if size > 1 and (whole or images % size != 1):
        return
    for name, module in model.named_modules():
        pools = isinstance(module, nn.Sequential) and any(
            isinstance(child, nn.AdaptiveAvgPool2d) and child.output_size in (1, (1, 1)) for child in module)
        if pools and any(has_statistics(part) and not (processes > 1 and 'Sync' in type(part).__name__)
                         for part in module.modules()):
            raise UserError(f'train_dataloader: batch_size={size} with {images} images for a process gives a batch of '
                            f'one image, of whose average BatchNorm in model.{name} learns nothing. Set batch_size to '
                            "another number, or norm_cfg=dict(type='GN', num_groups=32) of the head.")
