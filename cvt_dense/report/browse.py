"""Report the data and schedules of a training: augmented samples, statistics, learning rates, suspect annotations."""
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import imagehash
import numpy as np
import supervision as sv
import torch
from matplotlib.figure import Figure
from mmengine.hooks import Hook
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from PIL import Image
from pycocotools import mask as mask_utils
from tqdm import tqdm

from ..datasets.listing import image_name
from ..palette import choose_palette
from .collect import annotate, name_unreadable, overlay, picture, scan, to_rle
from .page import Cell, Report, side_by_side

SMALL = 16  # side in pixels below which an object has at most 4 x 4 cells of the finest map
NEAR = 4  # bits of 64 by which the perceptual hashes of near duplicates differ at most
SCANNED = 5000  # images of a split that are read for hashes


class SamplesHook(Hook):
    """Keeps the network's first inputs of a training, and ends the training before its first step.

    Args:
        number: samples to keep.
        split: 'train', or 'val' or 'test' for the images of an evaluation.

    Attributes:
        samples: one dict per sample with ``input`` (C, H, W), preprocessed, and ``sample``, a data sample of mmdet or
            mmseg, or ``label`` and ``path`` of a classifier; ``hidden``, bool (H, W), of masked pretraining.
        milestones, curves: see :func:`schedule`.
    """

    priority = 'LOWEST'

    class Finished(Exception):
        """Ends the training."""

    def __init__(self, number: int, split: str = 'train'):
        self.number = number
        self.split = split
        self.samples: list[dict[str, Any]] = []
        self.milestones: list[int] = []
        self.curves: list[dict[str, Any]] = []

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        if self.split == 'train':
            later = getattr(runner.train_loop, 'dataloader_iterator', None)  # of a training without epochs
            batches = itertools.chain([data_batch], later or itertools.islice(runner.train_dataloader, 1, None))
        else:
            batches = getattr(runner, f'{self.split}_dataloader')
        for batch in batches:
            self._add(runner.model, batch)
            if len(self.samples) >= self.number:
                break
        del self.samples[self.number:]
        self.milestones, self.curves = schedule(runner)
        raise self.Finished

    def _add(self, model: Any, batch: Any) -> None:
        data = model.data_preprocessor(batch, training=self.split == 'train')
        inputs = data['inputs']
        hidden = [None] * len(inputs)
        if hasattr(model, 'mask_unit'):  # masked pretraining: one value for each square
            hidden = model.draw(inputs).repeat_interleave(model.mask_unit, 1).repeat_interleave(model.mask_unit, 2)
        for i, image in enumerate(inputs):
            sample = dict(input=restore(image, model.data_preprocessor), hidden=hidden[i])
            if 'data_samples' in data:
                sample['sample'] = data['data_samples'][i]
            else:
                sample.update(label=data['labels'][i] if 'labels' in data else None, path=data['paths'][i])
            self.samples.append(sample)


def restore(image: torch.Tensor, preprocessor: Any) -> Image.Image:
    """Return a preprocessed image (C, H, W) in its original colours; of other than three channels the first."""
    if getattr(preprocessor, 'mean', None) is not None:
        image = image * preprocessor.std + preprocessor.mean
    elif image.min() < 0 or image.max() <= 1:
        image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-6) * 255
    pixels = image.clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).convert('RGB')


def schedule(runner: Runner) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the learning rate and momentum of every group of parameters that differs, over the whole run.

    The run's own schedulers are stepped without training, so the run cannot go on afterwards.

    Returns:
        the iterations at which the run or a scheduler begins, ends or has a milestone; and one dict per group with
        ``parameters`` (number of tensors), ``name`` of the first one, ``weight_decay``, ``lr`` and ``momentum`` (lists
        with one value per iteration).
    """
    names = {id(parameter): name for name, parameter in runner.model.named_parameters()}
    kinds: dict[tuple, dict[str, Any]] = {}
    for group in runner.optim_wrapper.optimizer.param_groups:
        kind = group['lr'], group['weight_decay'], str(group.get('betas', group.get('momentum')))
        curve = kinds.setdefault(kind, dict(
            group=group, parameters=0, name=names.get(id(group['params'][0]), ''), lr=[], momentum=[],
            weight_decay=group['weight_decay']))
        curve['parameters'] += len(group['params'])
    epoch = len(runner.train_dataloader) if runner.train_loop.max_epochs else runner.max_iters
    milestones = {0, runner.max_iters - 1}
    for scheduler in runner.param_schedulers:
        begin, unit = scheduler.begin, epoch if scheduler.by_epoch else 1
        later = (begin + step for step in getattr(scheduler, 'milestones', ()))
        milestones.update(unit * step for step in (begin, scheduler.end, *later))
    for iteration in range(1, runner.max_iters + 1):
        for curve in kinds.values():
            group = curve['group']
            curve['lr'].append(group['lr'])
            curve['momentum'].append(group['betas'][0] if 'betas' in group else group.get('momentum', 0.))
        for scheduler in runner.param_schedulers:
            if not scheduler.by_epoch or iteration % epoch == 0:
                scheduler.step()
    return sorted(i for i in milestones if i < runner.max_iters), list(kinds.values())


def add_samples(report: Report, samples: Sequence[dict[str, Any]], infos: Sequence[dict[str, Any]],
                classes: Sequence[str], late: bool) -> None:
    """Add the samples to a report: the original image of each beside the network's input.

    Args:
        report: gets one section.
        samples: see :class:`SamplesHook`.
        infos: what :func:`cvt_dense.report.collect.read_infos` returned for their data set.
        classes: class names.
        late: annotations are loaded after the image is resized, as mmdet's test pipelines do, and stay as they are.
    """
    report.add_section('Samples', 'The original image beside the input of the network, with its annotation.')
    palette, numbers, by_name = choose_palette(classes), [], {image_name(info): info for info in infos}
    for sample in samples:
        seen, note = sample['input'], ''
        if 'sample' in sample:
            report.legend = dict(zip(classes, palette))
            path = sample['sample'].img_path
            seen = _draw(seen, sample['sample'], classes, palette, late)
        else:
            path, label = sample['path'], sample['label']
            if sample['hidden'] is not None:
                seen = Image.composite(Image.new('RGB', seen.size, 'grey'), seen, Image.fromarray(
                    sample['hidden'].cpu().numpy().astype(np.uint8) * 255))
                note = f'{100 * float(sample["hidden"].float().mean()):.0f} % hidden'
            elif label is not None and len(classes):
                weights = label if label.ndim else torch.eye(len(classes))[label]
                best = [(float(weights[k]), classes[k]) for k in weights.argsort(descending=True)[:2]]
                note = ', '.join(f'{name} {weight:.2f}' for weight, name in best if weight > 0.05)
        numbers.append(report.add_image(path, partial(side_by_side, picture(by_name[path]), seen), note))
    report.add_pictures(numbers)


def _draw(image: Image.Image, sample: Any, classes: Sequence[str], palette: Sequence[Any], late: bool) -> Image.Image:
    if 'gt_sem_seg' in sample:
        return overlay(image, sample.gt_sem_seg.data[0].cpu().numpy(), palette)
    boxes = sample.gt_instances.bboxes
    boxes = getattr(boxes, 'tensor', boxes).cpu().numpy()
    labels, masks = sample.gt_instances.labels.cpu().numpy(), None
    if late:
        boxes = boxes * np.tile(sample.scale_factor, 2)
    elif 'masks' in sample.gt_instances and len(boxes):
        inside = np.asarray(sample.gt_instances.masks.to_ndarray(), bool)
        masks = np.zeros((len(inside), image.height, image.width), bool)
        masks[:, :inside.shape[1], :inside.shape[2]] = inside
    return annotate(image, boxes, labels, classes, palette, masks=masks)


def add_schedule(report: Report, milestones: Sequence[int], curves: Sequence[dict[str, Any]]) -> None:
    """Add the learning rates and momenta over the run to a report.

    Args:
        report: the report.
        milestones: iterations that the table lists.
        curves: result of :func:`schedule`.
    """
    report.add_section('Learning rate and momentum',
                       'The curves of every group of parameters that differs. Nothing was trained.')
    figure = Figure((9, 3))
    for axes, key, name in zip(figure.subplots(1, 2), ('lr', 'momentum'), ('learning rate', 'momentum')):
        for curve in curves:
            steps = np.unique(np.r_[0:len(curve[key]):max(len(curve[key]) // 2000, 1), milestones].astype(int))
            axes.plot(steps, np.array(curve[key])[steps],
                      label=f'{curve["parameters"]} tensors, weight decay {curve["weight_decay"]:g}')
        axes.set(xlabel='iteration', ylabel=name)
    if len(curves) <= 12:
        axes.legend(fontsize=7)
    report.add_figure(figure)
    if len(milestones) > 8:
        milestones = [*milestones[:4], *milestones[-4:]]
    for key, name in (('lr', 'learning rate'), ('momentum', 'momentum')):
        report.add_table(['first parameter', 'tensors', 'weight decay', *(f'{name} at {i}' for i in milestones)], [
            [curve['name'], curve['parameters'], f'{curve["weight_decay"]:g}',
             *(f'{curve[key][i]:.4g}' for i in milestones)] for curve in curves])


def add_detection_statistics(report: Report, split: str, infos: Sequence[dict[str, Any]], classes: Sequence[str],
                             scale: tuple[int, int] | None) -> None:
    """Add objects per class, their sizes and suspect annotations of a detection data set to a report.

    Args:
        report: gets one section.
        split: name of the split.
        infos: what :func:`cvt_dense.report.collect.read_infos` returned.
        classes: class names.
        scale: (longest, shortest) side to which the test pipeline resizes; None: as they are.
    """
    palette = choose_palette(classes)
    images, small, suspects = defaultdict(list), defaultdict(list), defaultdict(list)
    objects, sides, ratios = Counter(), [], []
    for info in tqdm(infos, desc=f'objects of {split}', unit=' images', leave=False, disable=None):
        width, height = info['width'], info['height']
        factor = min(max(scale) / max(width, height), min(scale) / min(width, height)) if scale else 1.
        boxes = np.array([one['bbox'] for one in info['instances']], float).reshape(-1, 4)
        labels = np.array([one['bbox_label'] for one in info['instances']], int)
        number = report.add_image(info['img_path'], partial(_draw_objects, info, boxes, labels, classes, palette))
        sizes = boxes[:, 2:] - boxes[:, :2]
        side = factor * np.sqrt(np.clip(sizes, 0, None).prod(1))
        objects.update(labels.tolist())
        for k in set(labels.tolist()):
            images[k].append(number)
        for k in labels[side < SMALL].tolist():
            small[k].append(number)
        sides += side.tolist()
        ratios += (sizes[:, 0] / np.maximum(sizes[:, 1], 1e-6)).tolist()
        overlaps = np.triu(sv.box_iou_batch(boxes, boxes), 1) > 0.9 if len(boxes) else np.zeros((0, 0), bool)
        same = labels[:, None] == labels
        filled = [_fills(one, height, width) for one in info['instances']]
        for kind, found in {
                'no object': not len(boxes),
                'a box without area': (sizes <= 0).any(),
                'a box that leaves the image': (boxes < -1).any() or (boxes[:, 2:] > [width + 1, height + 1]).any(),
                'a mask that does not fill its box (IoU below 0.7)': not all(filled),
                'one object drawn as two of its class (IoU above 0.9)': (overlaps & same).any(),
                'one object drawn as two classes (IoU above 0.9)': (overlaps & ~same).any()}.items():
            suspects[kind] += [number] * bool(found)
    total, below = sum(objects.values()), sum(map(len, small.values()))
    report.add_section(
        f'Data: {split}', f'{len(infos)} images, {total} objects, {total / max(len(infos), 1):.1f} objects per image. '
        f'{below} objects ({100 * below / max(total, 1):.1f} %) have sides below {SMALL} pixels after resizing, which '
        'the finest map cannot separate.')
    report.add_table(['class', 'images', 'objects', f'below {SMALL} pixels', '%'], [
        [name, Cell(len(images[k]), images[k]), objects[k], Cell(len(small[k]), list(dict.fromkeys(small[k]))),
         100 * len(small[k]) / max(objects[k], 1)] for k, name in enumerate(classes)])
    if total:
        figure = Figure((9, 3))
        for axes, values, name in zip(
                figure.subplots(1, 3), (sides, np.clip(ratios, 0, 5), [len(info['instances']) for info in infos]),
                (f'side after resizing, pixels (red: {SMALL})', 'width / height', 'objects per image')):
            axes.hist(values, bins=40)
            axes.set(xlabel=name)
        figure.axes[0].axvline(SMALL, color='red')
        report.add_figure(figure, 'Sizes, aspect ratios and objects per image.')
    report.add_table(['images with', 'number'], [[kind, Cell(len(found), found)] for kind, found in suspects.items()])


def _fills(instance: dict[str, Any], height: int, width: int) -> bool:
    """Return whether an object's mask, if it has one, reaches its box's sides."""
    mask = to_rle(instance.get('mask'), height, width)
    if mask is None:
        return True
    left, top, right, bottom = mask_utils.toBbox(mask)
    return sv.box_iou_batch(np.array([instance['bbox']]), np.array([[left, top, left + right, top + bottom]])) >= 0.7


def _draw_objects(info: dict[str, Any], boxes: np.ndarray, labels: np.ndarray, classes: Sequence[str],
                  palette: Sequence[Any]) -> Image.Image:
    return side_by_side(annotate(picture(info), boxes, labels, classes, palette))


def add_pixel_statistics(report: Report, split: str, infos: Sequence[dict[str, Any]], classes: Sequence[str],
                         pipeline: Iterable[Any]) -> set[str]:
    """Add pixels per class of all label maps to a report; return the classes that occur.

    Args:
        report: gets one section.
        split: name of the split.
        infos: what :func:`cvt_dense.report.collect.read_infos` returned.
        classes: class names.
        pipeline: the data set's steps, whose ``LoadAnnotations`` reads the label maps.
    """
    load = next((step for step in pipeline if type(step).__name__ == 'LoadAnnotations'), None)
    load = load or TRANSFORMS.build(dict(type='LoadAnnotations'))
    palette, pixels, images = choose_palette(classes), Counter(), defaultdict(list)

    def draw(info: dict[str, Any]) -> Image.Image:
        image = picture(info)
        return side_by_side(image, overlay(image, load(dict(info, seg_fields=[]))['gt_seg_map'], palette))

    for info in tqdm(infos, desc=f'label maps of {split}', unit=' images', leave=False, disable=None):
        number = report.add_image(info['img_path'], partial(draw, info))
        values, counts = np.unique(load(dict(info, seg_fields=[]))['gt_seg_map'], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist()):
            pixels[value] += count
            images[value].append(number)
    total = max(sum(pixels.values()), 1)
    names = dict(enumerate(classes)) | {
        value: f'{value} (no class)' for value in pixels if not 0 <= value < len(classes)}
    report.add_section(f'Data: {split}', f'{len(infos)} images.')
    report.add_table(['class', 'images', 'pixels, %'], [
        [name, Cell(len(images[value]), images[value]), 100 * pixels[value] / total] for value, name in names.items()])
    return {classes[value] for value in pixels if 0 <= value < len(classes)}


def add_class_statistics(report: Report, split: str, labels: Iterable[int], classes: Sequence[str]) -> None:
    """Add the number of images of each class of a classification data set to a report.

    Args:
        report: the report.
        split: name of the data set.
        labels: class number of each image.
        classes: names.
    """
    counts = Counter(labels)
    report.add_section(f'Data: {split}', f'{sum(counts.values())} images.')
    report.add_table(['class', 'images'], [[name, counts[k]] for k, name in enumerate(classes)])


def add_duplicates(report: Report, splits: dict[str, Sequence[dict[str, Any]]]) -> list[str]:
    """Add exact and near duplicates, within and between splits, to a report, and name unreadable images, also returned.

    Args:
        report: gets one section.
        splits: by name, what :func:`cvt_dense.report.collect.read_infos` returned; at most ``SCANNED`` images of each
            are read.
    """
    found, unreadable = [], []
    for split, infos in splits.items():
        for info, (data, image) in zip(infos, scan(infos[:SCANNED], f'images of {split}')):
            if image is None:
                unreadable.append(image_name(info))
            else:
                bits = np.packbits(imagehash.phash(image).hash).view(np.uint64)[0]
                found.append((split, info, hashlib.sha1(data).digest(), bits))
    name_unreadable(report, unreadable)
    report.add_section('Duplicates', f'Pairs among the first {len(found)} images: the same file, or a perceptual hash '
                       f'that differs in at most {NEAR} of 64 bits.')
    pairs: dict[str, list[int]] = defaultdict(list)
    counted: Counter = Counter()
    bits = np.array([bits for *_, bits in found], np.uint64)
    for i, (split, info, digest, _) in enumerate(found):
        for j in i + 1 + np.flatnonzero(np.bitwise_count(bits[i + 1:] ^ bits[i]) <= NEAR):
            other_split, other, other_digest, _ = found[j]
            kind = ('the same file, ' if digest == other_digest else 'nearly the same, ') + (
                f'within {split}' if split == other_split else f'between {split} and {other_split}')
            counted[kind] += 1
            if len(pairs[kind]) < 60:
                pairs[kind].append(report.add_image(image_name(info), partial(_draw_pair, info, other),
                                                    f'left; right: {image_name(other)}'))
    report.add_table(['pairs', 'number'], [[kind, Cell(count, pairs[kind])] for kind, count in counted.items()]
                     or [['none', 0]])
    return unreadable


def _draw_pair(*infos: dict[str, Any]) -> Image.Image:
    return side_by_side(*map(picture, infos))


def add_missing_classes(report: Report, occurring: dict[str, set[str]], classes: Sequence[str]) -> None:
    """Add to a report's summary the classes that occur in one split only or whose names are almost the same.

    Args:
        report: the report.
        occurring: names of the classes that occur, by split.
        classes: all names.
    """
    for first, second in itertools.permutations(occurring, 2):
        missing = sorted(occurring[first] - occurring[second])
        if missing:
            more = ' and others' if len(missing) > 10 else ''
            report.summary.append(f'{len(missing)} classes of {first} do not occur in {second}: '
                                  f'{", ".join(missing[:10])}{more}.')
    similar = defaultdict(list)
    for name in classes:
        similar[''.join(filter(str.isalnum, name.casefold())).removesuffix('s')].append(name)
    for names in similar.values():
        if len(names) > 1:
            report.summary.append(f'The classes {", ".join(map(repr, names))} may be one class.')
