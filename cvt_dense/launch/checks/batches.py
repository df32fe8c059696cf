"""Check that the images of a data set can be put into batches, and that a model can learn from them."""
import os
import random
from itertools import chain, islice
from typing import Any

from mmengine import fileio
from mmengine.dataset import BaseDataset, InfiniteSampler
from mmengine.dist import get_world_size
from torch import Tensor, nn

from ...config import is_remote, walk
from ...errors import UserError
from ...images import Header
from ...models.attention import has_statistics
from ...models.cvt import MIN_INPUT_SIZE, CvT
from ..built import Built

TRIED = 8  # images that go through a pipeline before the run


def check_loaders(built: Built) -> None:
    """Check that each data loader has a batch.

    Raises:
        UserError: there are fewer images than one batch, and ``drop_last`` leaves the incomplete one out.
    """
    for stage, loader in built.loaders.items():
        size, images = loader.batch_sampler.batch_size, -(-len(loader.dataset) // get_world_size())
        if loader.drop_last and images < size and not isinstance(loader.batch_sampler.sampler, InfiniteSampler):
            raise UserError(f'{stage}_dataloader: batch_size={size} with drop_last=True, but a process has {images} '
                            f'images. Set batch_size to {images} or less.')


def check_scored(built: Built) -> None:
    """Check that an evaluation reads each image once of the files that its metrics count.

    Raises:
        UserError: it reads another number of images than such a file lists.
    """
    for stage, loader in ((stage, loader) for stage, loader in built.loaders.items() if stage != 'train'):
        evaluator, dataset = built.cfg.get(f'{stage}_evaluator'), loader.dataset
        files = {node['ann_file']: path for path, node in walk(evaluator, f'{stage}_evaluator') if not is_remote(node)
                 and str(node.get('ann_file')).endswith('.json') and os.path.isfile(node['ann_file'])
                 and not node.get('format_only')}
        counts = {file: len(fileio.load(file).get('images', ())) for file in files}
        indices = chain(*islice(loader.batch_sampler, len(loader))) if files else ()
        read = [dataset.get_data_info(i).get('img_path', i) for i in indices]
        if files and 'dataset_prefixes' in evaluator:  # each metric scores a data set of its own
            counts = {min(files): sum(counts.values())}
        for file, number in counts.items():
            if number and not -(-number // get_world_size()) == len(read) == len({*read}):
                raise UserError(
                    f'{files[file]}.ann_file={file!r} lists {number} images, which are all scored once, but a process '
                    f'reads {len(read)}, {len({*read})} different ones: remove dataset.indices, num_batch_per_epoch, '
                    f'drop_last, a wrapper that repeats, or filter_cfg (test_mode=True) of {stage}_dataloader, or give '
                    'both a file of the same images.')


def check_pipeline(dataset: BaseDataset, infos: dict[str, dict[str, Any]], headers: dict[str, Header], built: Built,
                   stage: str) -> None:
    """Send the smallest, the thinnest and some other images of a data set through its pipeline.

    Args:
        dataset: of MMDetection or MMSegmentation.
        infos: its entry for each image file, without the objects.
        headers: of image files.
        built: what the run consists of.
        stage: 'train', 'val' or 'test'.

    Raises:
        UserError: the pipeline fails, or makes an image that the network cannot take; or small images would be padded
            with a label that is neither a class nor ignored.
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
    preprocessor, backbone = built.model.data_preprocessor, getattr(built.model, 'backbone', None)
    pads = stage == 'train' or getattr(preprocessor, 'pad_size_divisor', 1) > 1 or getattr(
        preprocessor, 'test_cfg', None)
    for path, (channels, *size) in shapes.items():
        if channels != getattr(backbone, 'in_channels', channels):
            raise UserError(f'{path!r} becomes an array of {channels} channels. Set model.backbone.in_channels to it.')
        if isinstance(backbone, CvT) and not pads and min(size) < MIN_INPUT_SIZE:
            raise UserError(f'the pipeline makes {size[0]}x{size[1]} pixels (height x width) of {path!r}, and CvT '
                            f'needs {MIN_INPUT_SIZE} on each side. Set a larger image_size, or remove such images.')
    padding, crop = getattr(preprocessor, 'seg_pad_val', 255), getattr(preprocessor, 'size', None) or ()
    if stage == 'train' and any(side < least for shape in shapes.values() for side, least in zip(shape[1:], crop)):
        for head in built.model.modules():
            ignored = getattr(head, 'ignore_index', padding)
            if getattr(head, 'num_classes', 256) <= padding != ignored:
                raise UserError(f'small images are padded with the label data_preprocessor.seg_pad_val={padding}, a '
                                f'head has ignore_index={ignored}: give both one value.')


def check_batch_norm(built: Built) -> None:
    """Check that no BatchNorm normalises a single value, as in the pooled map of a batch of one image.

    Raises:
        UserError: a batch holds one image, and the model averages its map in front of a BatchNorm.
    """
    if built.stage != 'train':
        return
    loader, processes = built.loaders['train'], get_world_size()
    size, images = loader.batch_sampler.batch_size, -(-len(loader.dataset) // processes)
    whole = loader.drop_last or isinstance(loader.batch_sampler.sampler, InfiniteSampler)
    if size > 1 and (whole or images % size != 1):
        return
    for name, module in built.model.named_modules():
        pools = isinstance(module, nn.Sequential) and any(
            isinstance(child, nn.AdaptiveAvgPool2d) and child.output_size in (1, (1, 1)) for child in module)
        if pools and any(has_statistics(part) and not (processes > 1 and isinstance(part, nn.SyncBatchNorm))
                         for part in module.modules()):
            raise UserError(f'train_dataloader: batch_size={size} with {images} images per process gives a batch of a '
                            f'single image, and BatchNorm in model.{name} normalises averaged maps, which needs two '
                            "images. Set another batch_size, or norm_cfg=dict(type='GN', num_groups=32) of the head.")
