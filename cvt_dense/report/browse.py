"""What a network is fed: augmented samples, statistics of the data, learning rates, and suspect annotations."""
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import imagehash
import numpy as np
import supervision as sv
import torch
from matplotlib.figure import Figure
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image
from sklearn.neighbors import NearestNeighbors
from tqdm import tqdm

from .collect import annotate, overlay, read_image
from .page import Cell, Report, side_by_side

SMALL = 16  # side in pixels below which an object has at most 4 x 4 cells of the finest map
NEAR = 4  # bits of 64 by which the perceptual hashes of near duplicates differ at most
SCANNED = 5000  # images of a split that are read for label maps and hashes


class FirstBatchesHook(Hook):
    """Keeps what the network would see first in a training, and ends the training before its first step.

    Args:
        number: samples to keep.

    Attributes:
        samples: one dict per sample with ``input`` (C, H, W), preprocessed, and ``sample``, a data sample of mmdet or
            mmseg, or ``label`` and ``path`` of a classifier.
        curves: by the number of parameters and the settings of each group that differs, its learning rate and momentum
            after every iteration, see :func:`schedule`.
    """

    priority = 'LOWEST'

    class Finished(Exception):
        """Ends the training."""

    def __init__(self, number: int):
        self.number = number
        self.samples: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        if not self.samples:
            self.curves = schedule(runner)
        model = runner.model
        data = model.data_preprocessor(data_batch, training=True)
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
        if len(self.samples) >= self.number:
            del self.samples[self.number:]
            raise self.Finished


def restore(image: torch.Tensor, preprocessor: Any) -> Image.Image:
    """Return a preprocessed image (C, H, W) in its original colours; of other than three channels the first."""
    if getattr(preprocessor, 'mean', None) is not None:
        image = image * preprocessor.std + preprocessor.mean
    elif image.min() < 0 or image.max() <= 1:
        image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-6) * 255
    pixels = image.clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).convert('RGB')


def schedule(runner: Runner) -> list[dict[str, Any]]:
    """Return the learning rate and momentum of every group of parameters that differs, over the whole run.

    The run's own schedulers step copies of its groups, one of each kind, without training.

    Returns:
        one dict per group with ``parameters`` (number of tensors), ``weight_decay``, ``lr`` and ``momentum`` (lists
        with one value per iteration).
    """
    groups = runner.optim_wrapper.param_groups
    kinds: dict[tuple, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        kinds[group['lr'], group['weight_decay'], str(group.get('betas', group.get('momentum')))].append(i)
    curves = [dict(parameters=sum(len(groups[i]['params']) for i in members), lr=[], momentum=[],
                   weight_decay=groups[members[0]]['weight_decay']) for members in kinds.values()]
    saved = [dict(group) for group in groups], [s.state_dict() for s in runner.param_schedulers]
    epoch = len(runner.train_dataloader) if runner.train_loop.max_epochs else None
    with torch.no_grad():
        for iteration in range(1, runner.max_iters + 1):
            for curve, members in zip(curves, kinds.values()):
                group = groups[members[0]]
                curve['lr'].append(group['lr'])
                curve['momentum'].append(group['betas'][0] if 'betas' in group else group.get('momentum', 0.))
            for scheduler in runner.param_schedulers:
                if not scheduler.by_epoch or (epoch and iteration % epoch == 0):
                    scheduler.step()
    for group, before in zip(groups, saved[0]):
        group.update({key: value for key, value in before.items() if key != 'params'})
    for scheduler, state in zip(runner.param_schedulers, saved[1]):
        scheduler.load_state_dict(state)
    return curves


def add_samples(report: Report, samples: Sequence[dict[str, Any]], classes: Sequence[str]) -> dict[int, Image.Image]:
    """Add the samples to a report; return the picture of each, the original image beside what the network sees."""
    report.add_section('Samples', 'The first images of the training: the original beside what the network sees, with '
                       'its annotation.')
    pictures = {}
    for sample in samples:
        seen, note = sample['input'], ''
        if 'sample' in sample:
            path = sample['sample'].img_path
            seen = _draw(seen, sample['sample'], classes)
        else:
            path = sample['path']
            label = sample['label']
            if sample['hidden'] is not None:
                seen = Image.composite(Image.new('RGB', seen.size, 'grey'), seen, Image.fromarray(
                    sample['hidden'].squeeze().cpu().numpy().astype(np.uint8) * 255))
            elif label is not None and len(classes):
                weights = label if label.ndim else torch.eye(len(classes))[label]
                best = [(float(weights[k]), classes[k]) for k in weights.argsort(descending=True)[:2]]
                note = ', '.join(f'{name} {weight:.2f}' for weight, name in best if weight > 0.05)
        pictures[report.add_image(path, note)] = side_by_side(read_image(path), seen)
    report.add_pictures(list(pictures))
    return pictures


def _draw(image: Image.Image, sample: Any, classes: Sequence[str]) -> Image.Image:
    if 'gt_sem_seg' in sample:
        return overlay(image, sample.gt_sem_seg.data[0].cpu().numpy(), None)
    boxes = sample.gt_instances.bboxes
    boxes = getattr(boxes, 'tensor', boxes).cpu().numpy()
    labels = sample.gt_instances.labels.cpu().numpy()
    if 'masks' in sample.gt_instances and len(boxes):
        masks = np.asarray(sample.gt_instances.masks.to_ndarray(), bool)
        padded = np.zeros((len(masks), image.height, image.width), bool)
        padded[:, :masks.shape[1], :masks.shape[2]] = masks
        image = sv.MaskAnnotator().annotate(image.copy(), sv.Detections(boxes, mask=padded, class_id=labels))
    return annotate(image, boxes, labels, classes)


def add_schedule(report: Report, curves: Sequence[dict[str, Any]]) -> None:
    """Add the learning rates and momenta over the run to a report."""
    report.add_section('Learning rate')
    figure = Figure((8, 3))
    axes = figure.subplots()
    for curve in curves:
        stride = max(len(curve['lr']) // 2000, 1)
        axes.plot(range(0, len(curve['lr']), stride), curve['lr'][::stride],
                  label=f'{curve["parameters"]} tensors, weight decay {curve["weight_decay"]:g}')
    axes.set(xlabel='iteration', ylabel='learning rate')
    if len(curves) <= 12:
        axes.legend(fontsize=7)
    report.add_figure(figure, 'The learning rate of every group of parameters that differs.')
    rows = []
    for curve in curves:
        lr = curve['lr']
        peak = int(np.argmax(lr))
        rows.append([curve['parameters'], f'{curve["weight_decay"]:g}', *(f'{value:.3g}' for value in (
            lr[0], lr[peak])), peak, f'{lr[len(lr) // 2]:.3g}', f'{lr[-1]:.3g}', f'{curve["momentum"][0]:g}'])
    report.add_table(
        ['tensors', 'weight decay', 'first', 'highest', 'at iteration', 'half-way', 'last', 'momentum'], rows)


def add_detection_statistics(report: Report, split: str, data_set: Any, scale: tuple[int, int] | None) -> None:
    """Add objects per class, their sizes and suspect annotations of a detection data set to a report.

    Args:
        report: gets one section.
        split: its name.
        data_set: with ``get_data_info(i)`` as mmdet's.
        scale: (longest, shortest) side to which the test pipeline resizes; None: as they are.
    """
    classes = data_set.metainfo['classes']
    infos = [data_set.get_data_info(i) for i in range(len(data_set))]
    numbers = {i: report.add_image(info['img_path']) for i, info in enumerate(infos)}
    images, objects, small = Counter(), Counter(), Counter()
    sides, ratios, suspects = [], [], defaultdict(list)
    for i, info in enumerate(infos):
        width, height = info['width'], info['height']
        factor = min(max(scale) / max(width, height), min(scale) / min(width, height)) if scale else 1.
        boxes = np.array([one['bbox'] for one in info['instances']], float).reshape(-1, 4)
        labels = np.array([one['bbox_label'] for one in info['instances']], int)
        sizes = boxes[:, 2:] - boxes[:, :2]
        side = factor * np.sqrt(np.clip(sizes, 0, None).prod(1))
        objects.update(labels.tolist())
        images.update(set(labels.tolist()))
        small.update(labels[side < SMALL].tolist())
        sides += side.tolist()
        ratios += (sizes[:, 0] / np.maximum(sizes[:, 1], 1e-6)).tolist()
        if (sizes <= 0).any():
            suspects['a box without area'].append(numbers[i])
        if len(boxes) and ((boxes < -1).any() or (boxes[:, [2, 3]] > np.array([width, height]) + 1).any()):
            suspects['a box that leaves the image'].append(numbers[i])
        overlaps = sv.box_iou_batch(boxes, boxes) * (labels[:, None] == labels) if len(boxes) else np.zeros((0, 0))
        if (np.triu(overlaps, 1) > 0.9).any():
            suspects['one object drawn as two of its class (IoU above 0.9)'].append(numbers[i])
        for one, box in zip(info['instances'], boxes):
            if isinstance(one.get('mask'), list) and one['mask']:
                points = np.concatenate([np.reshape(polygon, (-1, 2)) for polygon in one['mask']])
                if sv.box_iou_batch(box[None], np.r_[points.min(0), points.max(0)][None])[0, 0] < 0.7:
                    suspects['a mask that does not fill its box (IoU below 0.7)'].append(numbers[i])
                    break
    total = sum(objects.values())
    empty = [numbers[i] for i, info in enumerate(infos) if not info['instances']]
    report.add_section(
        f'Data: {split}', f'{len(infos)} images, {total} objects, {total / max(len(infos), 1):.1f} objects per image. '
        f'{sum(small.values())} objects ({100 * sum(small.values()) / max(total, 1):.1f} %) have sides below {SMALL} '
        'pixels after resizing, which the finest map cannot separate.')
    report.add_table(['class', 'images', 'objects', f'below {SMALL} pixels, %'], [
        [name, images[k], objects[k], 100 * small[k] / max(objects[k], 1)] for k, name in enumerate(classes)])
    if total:
        figure = Figure((9, 3))
        size, ratio, count = figure.subplots(1, 3)
        size.hist(sides, bins=40)
        size.axvline(SMALL, color='red')
        size.set(xlabel='side after resizing, pixels')
        ratio.hist(np.clip(ratios, 0, 5), bins=40)
        ratio.set(xlabel='width / height')
        count.hist([len(info['instances']) for info in infos], bins=30)
        count.set(xlabel='objects per image')
        report.add_figure(figure, 'Sizes, aspect ratios and objects per image.')
    report.add_table(['suspect', 'images'], [['without objects', Cell(len(empty), empty)],
                                             *([kind, Cell(len(found), found)] for kind, found in suspects.items())])


def add_pixel_statistics(report: Report, split: str, data_set: Any) -> None:
    """Add pixels per class of a segmentation data set to a report, of at most ``SCANNED`` label maps."""
    classes, pixels, images = data_set.metainfo['classes'], Counter(), defaultdict(list)
    infos = [data_set.get_data_info(i) for i in range(min(len(data_set), SCANNED))]
    for info in tqdm(infos, desc=f'label maps of {split}', unit=' images', leave=False, disable=None):
        number = report.add_image(info['img_path'])
        values, counts = np.unique(np.asarray(Image.open(info['seg_map_path'])), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist()):
            pixels[value] += count
            images[value].append(number)
    total = max(sum(pixels.values()), 1)
    names = {k: name for k, name in enumerate(classes)} | {
        value: f'{value} (no class)' for value in pixels if not 0 <= value < len(classes)}
    report.add_section(f'Data: {split}', f'{len(data_set)} images.')
    report.add_table(['class', 'images', 'pixels, %'], [
        [name, Cell(len(images[value]), images[value]), 100 * pixels[value] / total] for value, name in names.items()])


def add_class_statistics(report: Report, split: str, labels: Iterable[int], classes: Sequence[str]) -> None:
    """Add images per class of a classification data set to a report."""
    counts = Counter(labels)
    report.add_section(f'Data: {split}', f'{sum(counts.values())} images.')
    report.add_table(['class', 'images'], [[name, counts[k]] for k, name in enumerate(classes)])


def add_duplicates(report: Report, files: dict[str, Sequence[str]]) -> None:
    """Add exact and near duplicates, within and between splits, by perceptual hash (64 bits) to a report.

    Args:
        report: gets one section.
        files: image files of each split; at most ``SCANNED`` of each are read.
    """
    found = [(split, path) for split, paths in files.items() for path in itertools.islice(paths, SCANNED)]
    hashes, unreadable = [], []
    for split, path in tqdm(found, desc='perceptual hashes', unit=' images', leave=False, disable=None):
        try:
            hashes.append((split, path, imagehash.phash(Image.open(path)).hash.ravel()))
        except Exception:  # Pillow raises many types for broken files
            unreadable.append(path)
    if unreadable:
        report.summary.append(f'{len(unreadable)} images cannot be read: {", ".join(unreadable[:5])}.')
    report.add_section('Duplicates', f'Pairs among {len(hashes)} images whose perceptual hashes differ in at most '
                       f'{NEAR} of 64 bits.')
    pairs: dict[str, list[int]] = defaultdict(list)
    counted: Counter = Counter()
    if len(hashes) > 1:
        bits = np.stack([bits for _, _, bits in hashes])
        near = NearestNeighbors(radius=(NEAR + 0.5) / 64, metric='hamming', algorithm='brute').fit(bits)
        for i, neighbours in enumerate(near.radius_neighbors(bits, return_distance=False)):
            for j in neighbours[neighbours > i]:
                (first, path, _), (second, other, _) = hashes[i], hashes[j]
                kind = f'within {first}' if first == second else f'between {first} and {second}'
                counted[kind] += 1
                if len(pairs[kind]) < 60:
                    pairs[kind] += [report.add_image(path, f'like {other}'), report.add_image(other, f'like {path}')]
    report.add_table(['pairs', 'number'], [[kind, Cell(count, pairs[kind])] for kind, count in counted.items()]
                     or [['none', 0]])


def add_missing_classes(report: Report, occurring: dict[str, set[str]]) -> None:
    """Add the classes that occur in one split and not in another to a report's summary."""
    for first, second in itertools.permutations(occurring, 2):
        missing = sorted(occurring[first] - occurring[second])
        if missing:
            more = ', ...' if len(missing) > 10 else ''
            report.summary.append(f'{len(missing)} classes of {first} do not occur in {second}: '
                                  f'{", ".join(missing[:10])}{more}.')
