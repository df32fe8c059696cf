"""Check that the images of a data set can be put into batches, and that a model can learn from them."""
import random
from typing import Any

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.dist import get_world_size
from mmengine.runner import Runner
from torch import Tensor, nn

from ...config.walk import dicts, type_name
from ...errors import UserError, listed
from ...images import Header
from ...models.attention import has_statistics
from ...models.cvt import MIN_INPUT_SIZE
from ...models.wrappers import unwrap

TRIED = 8  # images that go through a pipeline before the run


def check_loaders(runner: Runner, cfg: Config, datasets: dict[str, Any], content: dict[str, Any] | None) -> None:
    """Check that each data loader has a batch.

    Raises:
        UserError: there are fewer images than one batch, and ``drop_last`` leaves the incomplete one out.
    """
    for stage, dataset in datasets.items():
        loader = cfg[f'{stage}_dataloader']
        size, images = loader.get('batch_size', 1), -(-len(dataset) // get_world_size())
        if loader.get('drop_last') and images < size and 'Infinite' not in type_name(loader.get('sampler')):
            raise UserError(f'{stage}_dataloader: batch_size={size} with drop_last=True, but a process has {images} '
                            f'images. Set batch_size to {images} or less.')


def check_pipeline(dataset: BaseDataset, infos: dict[str, dict[str, Any]], headers: dict[str, Header], cfg: Config,
                   stage: str) -> None:
    """Send the smallest, the thinnest and some other images of a data set through its pipeline.

    Args:
        dataset: of MMDetection or MMSegmentation.
        infos: its entry for each image file, without the objects.
        headers: of image files.
        cfg: whole config.
        stage: 'train', 'val' or 'test'.

    Raises:
        UserError: the pipeline fails, or makes an image that the network or a batch of the loader cannot take; or
            small images would be padded with a label that is neither a class nor ignored.
    """
    paths, shapes = sorted(headers, key=lambda path: min(headers[path].shape[:2])), {}
    thinnest = sorted(paths, key=lambda path: min(headers[path].shape[:2]) / max(headers[path].shape[:2]))
    for path in dict.fromkeys([*paths[:1], *thinnest[:1], *random.Random(0).sample(paths, min(TRIED, len(paths)))]):
        try:
            sample = dataset.pipeline(dataset.get_data_info(infos[path]['sample_idx'])) or {}
        except Exception as error:  # whatever a transform raises would end the run later
            raise UserError(f'the pipeline cannot prepare {path!r}, {headers[path].dtype} of shape '
                            f'{headers[path].shape}: {type(error).__name__}: {error}') from error
        if isinstance(sample.get('inputs'), Tensor):
            shapes[path] = tuple(sample['inputs'].shape)
    preprocessor, backbone = (cfg.model.get(name) or {} for name in ('data_preprocessor', 'backbone'))
    pads = stage == 'train' or preprocessor.get('pad_size_divisor') or preprocessor.get('test_cfg')
    for path, (channels, *size) in shapes.items():
        if channels != backbone.get('in_channels', 3 if type_name(backbone) == 'CvT' else channels):
            raise UserError(f'{path!r} becomes an array of {channels} channels. Set model.backbone.in_channels to it.')
        if type_name(backbone) == 'CvT' and not pads and min(size) < MIN_INPUT_SIZE:
            raise UserError(f'the pipeline makes {size[0]}x{size[1]} pixels (height x width) of {path!r}, and CvT '
                            f'needs {MIN_INPUT_SIZE} on each side. Set a larger image_size, or remove such images.')
    padding, crop = preprocessor.get('seg_pad_val', 255), preprocessor.get('size') or ()
    if stage == 'train' and any(side < least for shape in shapes.values() for side, least in zip(shape[1:], crop)):
        for node in dicts([cfg.model.get('decode_head'), cfg.model.get('auxiliary_head')]):
            if node.get('num_classes', 256) <= padding != node.get('ignore_index', 255):
                raise UserError(f'small images are padded with the label data_preprocessor.seg_pad_val={padding}, a '
                                f'head has ignore_index={node.get("ignore_index", 255)}: give both one value.')
    batch = cfg[f'{stage}_dataloader'].get('batch_size', 1)
    if batch > 1 and not pads and len(set(shapes.values())) > 1:
        raise UserError(f'batch_size={batch}, but the images have different sizes after the pipeline, such as '
                        f'{listed(sorted(set(shapes.values())), 3)}. Set batch_size to 1.')


def check_batch_norm(runner: Runner, cfg: Config, datasets: dict[str, Any], content: dict[str, Any] | None) -> None:
    """Check that no BatchNorm normalises a single value, as in the pooled map of a batch of one image.

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
    for name, module in unwrap(runner.model).named_modules():
        pools = isinstance(module, nn.Sequential) and any(
            isinstance(child, nn.AdaptiveAvgPool2d) and child.output_size in (1, (1, 1)) for child in module)
        if pools and any(has_statistics(part) and not (processes > 1 and 'Sync' in type(part).__name__)
                         for part in module.modules()):
            raise UserError(f'train_dataloader: batch_size={size} with {images} images per process gives a batch of a '
                            f'single image, and BatchNorm in model.{name} normalises averaged maps, which needs two '
                            "images. Set another batch_size, or norm_cfg=dict(type='GN', num_groups=32) of the head.")
