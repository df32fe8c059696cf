"""Report the data of a training: augmented samples and statistics."""
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import supervision as sv
import torch
from mmcv.transforms import LoadAnnotations
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image
from tqdm import tqdm

from ..classes import Classes
from ..inference.palette import choose_palette
from ..pretraining.listing import image_name
from .collect import picture, read_infos, thumbnail
from .page import Cell, Report, side_by_side

SMALL = 16  # side in pixels below which an object has at most 4 x 4 cells of the finest map


class SamplesHook(Hook):
    """Keeps the network's first inputs of a training, and ends the training before its first step.

    Args:
        number: samples to keep.

    Attributes:
        samples: one dict per sample with ``input``, the picture that the network gets, and ``sample``, a data sample of
            mmdet or mmseg, or ``label`` and ``path`` of a classifier.
    """

    priority = 'LOWEST'

    class Finished(Exception):
        """Ends the training."""

    def __init__(self, number: int):
        self.number = number
        self.samples: list[dict[str, Any]] = []

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        later = getattr(runner.train_loop, 'dataloader_iterator', None)  # a training without epochs has one
        preprocessor = runner.model.data_preprocessor
        for batch in itertools.chain([data_batch], later or itertools.islice(runner.train_dataloader, 1, None)):
            data = preprocessor(batch, training=True)
            for i, image in enumerate(data['inputs']):
                parts = dict(sample='data_samples', label='labels', path='paths')
                entries = {key: data[name][i] for key, name in parts.items() if name in data}
                self.samples.append(dict(entries, input=restore(image, preprocessor)))
            if len(self.samples) >= self.number:
                break
        del self.samples[self.number:]
        raise self.Finished


def restore(image: torch.Tensor, preprocessor: Any) -> Image.Image:
    """Return a preprocessed image (C, H, W) in its original colours; of other than three channels the first."""
    if getattr(preprocessor, 'mean', None) is not None:
        image = image * preprocessor.std + preprocessor.mean
        if len(image) == 3 and not getattr(preprocessor, '_channel_conversion', True):
            image = image.flip(0)  # MMEngine's preprocessor has left it in BGR
    elif image.min() < 0 or image.max() <= 1:
        image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-6) * 255
    pixels = image.clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).convert('RGB')


def add_samples(report: Report, samples: Sequence[dict[str, Any]], data_set: Any) -> None:
    """Add the samples to a report: the original image of each beside the network's input.

    Args:
        report: gets one section.
        samples: see :class:`SamplesHook`.
        data_set: their data set.
    """
    classes = Classes.of_data(data_set, 'train').names
    palette, numbers = choose_palette(classes), []
    infos = {image_name(info): info for info in read_infos(data_set)}
    report.add_section('Samples', 'The original image beside the input of the network, with its annotation.')
    for sample in samples:
        seen, path, note = sample['input'], sample.get('path'), ''
        if 'sample' in sample:
            report.legend = dict(zip(classes, palette))
            path = sample['sample'].img_path
            seen = _draw(seen, sample['sample'], classes, palette)
        elif 'label' in sample and len(classes):
            label = sample['label']
            weights = label if label.ndim else torch.eye(len(classes))[label]
            best = [(float(weights[k]), classes[k]) for k in weights.argsort(descending=True)[:2]]
            note = ', '.join(f'{name} {weight:.2f}' for weight, name in best if weight > 0.05)
        numbers.append(report.add_image(path, partial(side_by_side, picture(infos[path]), seen), note))
    report.add_pictures(numbers)


def _draw(image: Image.Image, sample: Any, classes: Sequence[str], palette: Sequence[Any]) -> Image.Image:
    if 'gt_sem_seg' in sample:
        return thumbnail(image, sample.gt_sem_seg.data[0].cpu().numpy(), palette, classes)
    boxes = sample.gt_instances.bboxes
    boxes, masks = getattr(boxes, 'tensor', boxes).cpu().numpy(), None
    if 'masks' in sample.gt_instances and len(boxes):
        inside = np.asarray(sample.gt_instances.masks.to_ndarray(), bool)
        masks = np.zeros((len(inside), image.height, image.width), bool)
        masks[:, :inside.shape[1], :inside.shape[2]] = inside
    objects = sv.Detections(boxes.reshape(-1, 4), mask=masks, class_id=sample.gt_instances.labels.cpu().numpy())
    return thumbnail(image, objects, palette, classes)


def add_detection_statistics(report: Report, split: str, infos: Sequence[dict[str, Any]], classes: Sequence[str],
                             scale: tuple[int, int] | None) -> None:
    """Add objects per class and their sizes to a report.

    Args:
        report: gets one section.
        split: name of the split.
        infos: what :func:`cvt_dense.report.collect.read_infos` returned.
        classes: class names.
        scale: (longest, shortest) side to which the test pipeline resizes; None: as they are.
    """
    palette, objects = choose_palette(classes), []
    for info in tqdm(infos, desc=f'objects of {split}', unit=' images', leave=False, disable=None):
        width, height = info['width'], info['height']
        factor = min(max(scale) / max(width, height), min(scale) / min(width, height)) if scale else 1.
        boxes = np.array([instance['bbox'] for instance in info['instances']], float).reshape(-1, 4)
        labels = np.array([instance['bbox_label'] for instance in info['instances']], int)
        number = report.add_image(info['img_path'], partial(_draw_objects, info, boxes, labels, classes, palette))
        sizes = boxes[:, 2:] - boxes[:, :2]
        objects += zip(labels, factor * np.sqrt(np.clip(sizes, 0, None).prod(1)), itertools.repeat(number))
    labels, sides, numbers = np.array(objects, float).reshape(-1, 3).T
    rows = []
    for k, name in enumerate(classes):
        of_class, small = numbers[labels == k], numbers[(labels == k) & (sides < SMALL)]
        rows.append([name, Cell(len(np.unique(of_class)), np.unique(of_class)), len(of_class),
                     Cell(len(small), np.unique(small)), 100 * len(small) / max(len(of_class), 1)])
    report.add_section(
        f'Data: {split}', f'{len(infos)} images, {len(objects)} objects, {len(objects) / max(len(infos), 1):.1f} '
        f'objects per image. After resizing the median of their sides is {np.median(sides):.0f} pixels, and '
        f'{100 * np.mean(sides < SMALL):.1f} % are below {SMALL}, which the finest map cannot separate.')
    report.add_table(['class', 'images', 'objects', f'below {SMALL} pixels', '%'], rows)


def _draw_objects(info: dict[str, Any], boxes: np.ndarray, labels: np.ndarray, classes: Sequence[str],
                  palette: Sequence[Any]) -> Image.Image:
    return thumbnail(picture(info), sv.Detections(boxes, class_id=labels), palette, classes)


def add_pixel_statistics(report: Report, split: str, infos: Sequence[dict[str, Any]], classes: Sequence[str],
                         pipeline: Iterable[Any], ignored: int = 255) -> None:
    """Add pixels per class of all label maps to a report.

    Args:
        report: gets one section.
        split: name of the split.
        infos: what :func:`cvt_dense.report.collect.read_infos` returned.
        classes: class names.
        pipeline: the data set's steps, whose ``LoadAnnotations`` reads the label maps.
        ignored: label value that counts neither in the loss nor in the scores.
    """
    load = next(step for step in pipeline if isinstance(step, LoadAnnotations))
    palette, pixels, images = choose_palette(classes), Counter(), defaultdict(list)

    def with_label_map(info: dict[str, Any]) -> Image.Image:
        image = picture(info)
        label_map = load(dict(info, seg_fields=[]))['gt_seg_map']
        return side_by_side(image, thumbnail(image, label_map, palette, classes))

    for info in tqdm(infos, desc=f'label maps of {split}', unit=' images', leave=False, disable=None):
        number = report.add_image(info['img_path'], partial(with_label_map, info))
        values, counts = np.unique(load(dict(info, seg_fields=[]))['gt_seg_map'], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist()):
            pixels[value] += count
            images[value].append(number)
    total = max(sum(pixels.values()), 1)
    names = dict(enumerate(classes)) | {
        value: f'{value} ({"ignored" if value == ignored else "no class"})' for value in pixels
        if not 0 <= value < len(classes)}
    report.add_section(f'Data: {split}', f'{len(infos)} images.')
    report.add_table(['class', 'images', 'pixels, %'], [
        [name, Cell(len(images[value]), images[value]), 100 * pixels[value] / total] for value, name in names.items()])


def add_class_statistics(report: Report, split: str, infos: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Add the number of images of each class to a report.

    Args:
        report: gets one section.
        split: name of the split.
        infos: what :func:`cvt_dense.report.collect.read_infos` returned.
        classes: class names.
    """
    counts = Counter(info['label'] for info in infos)
    report.add_section(f'Data: {split}', f'{len(infos)} images.')
    report.add_table(['class', 'images'], [[name, counts[k]] for k, name in enumerate(classes)])
