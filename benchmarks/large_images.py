"""Large images whole, with windowed attention, and in slices: seconds, memory, accuracy, and objects across seams.

    python benchmarks/large_images.py CONFIG CHECKPOINT OUT.json [--sides 1024 2048 4096 8192] [--ways ...]

CONFIG is a detector or segmentor trained from configs/*_custom.py with arch = 'cvt-nano'. Its test photographs, each
resized to 512x341 pixels and mirrored at random, are put together to squares. Slices of 384 pixels are resized to the
224 pixels that the network was trained with; "whole" and "windowed" resize the whole image by the same factor, and the
windows have 224x224 pixels. "resized" is the config's own test pipeline. Each measurement is a process of its own,
and memory is what it needs beyond the loaded model. OUT.json holds a list of rows; those that are there already are
kept, so that an interrupted run continues.

Each object is assigned to the photograph that its centre lies in, and COCO's AP is computed over photographs. An
annotated object lies across seams if no slice contains its box. Of the objects with a score from 0.3, those that lie
in an annotated object by half or more, and fit no other better, are its parts. It is doubled if it has several parts,
and cut if its only part has an intersection over union below 0.5.
"""
import argparse
import json
import multiprocessing
import random
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DATASETS

from cvt_dense import inference as api
from cvt_dense.inference.slices import slice_starts

SIDE, CELL, SLICE, OVERLAP, TRAINED = 1024, (512, 1024 / 3), 384, 0.2, 224
WINDOWS = [dict(type='cvt_dense.WindowedAttention', window_size=TRAINED // stride) for stride in (4, 8, 16)]
NUMBER = {1024: 8, 2048: 2}  # of mosaics, to have more photographs in small ones; else 1
SCORE, WHOLE = 0.3, 4096  # larger images take global attention a quarter of an hour and more


def gib(key: str) -> float:
    """VmRSS or VmHWM of this process."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 2**20


def photographs(model: api.Model) -> list[tuple[np.ndarray, Any]]:
    """Return the test photographs, resized, with boxes (N, 4) in pixels or label maps."""
    dataset = DATASETS.build(dict(model.cfg.test_dataloader.dataset, pipeline=[]))
    photos, size = [], (CELL[0], round(CELL[1]))
    for info in dataset:
        image = model.read(info['img_path'])
        resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        if model.task == 'segmentation':
            labels = cv2.resize(cv2.imread(info['seg_map_path'], cv2.IMREAD_UNCHANGED), size,
                                interpolation=cv2.INTER_NEAREST)
        elif image.shape[0] > image.shape[1]:
            continue  # on its side it would not have the scale of the others
        else:
            labels = np.array([one['bbox'] for one in info['instances']], float).reshape(-1, 4)
            labels *= np.tile([size[0] / image.shape[1], size[1] / image.shape[0]], 2)
        photos.append((resized, labels))
    return photos


def mosaic(photos: list[tuple[np.ndarray, Any]], side: int, seed: int) -> tuple[np.ndarray, Any, np.ndarray]:
    """Return an image, its boxes or label map, and the place (left, top) of each photograph."""
    draw, order = random.Random(seed), []
    image, boxes, places = np.zeros((side, side, 3), np.uint8), [], []
    labels = np.full((side, side), 255, np.uint8)
    for row in range(round(side / CELL[1])):
        for left in range(0, side, CELL[0]):
            order = order or draw.sample(photos, len(photos))
            photo, label = order.pop()
            top, mirror = min(round(row * CELL[1]), side - photo.shape[0]), draw.random() < 0.5
            area = slice(top, top + photo.shape[0]), slice(left, left + CELL[0])
            image[area] = photo[:, ::-1] if mirror else photo
            places.append((left, top))
            if label.shape == photo.shape[:2]:
                labels[area] = label[:, ::-1] if mirror else label
            else:
                x1, y1, x2, y2 = label.T
                if mirror:
                    x1, x2 = CELL[0] - x2, CELL[0] - x1
                boxes.append(np.stack([x1 + left, y1 + top, x2 + left, y2 + top], 1))
    return image, np.concatenate(boxes) if boxes else labels, np.array(places)


def measure(model: api.Model, images: list, way: str) -> dict[str, Any]:
    """Predict all mosaics of one size; seconds of one image, memory, and accuracy."""
    Path('/proc/self/clear_refs').write_text('5')  # the peak so far is forgotten
    before, start, found = gib('VmRSS:'), time.perf_counter(), []
    sliced = dict(slice=SLICE, overlap=OVERLAP) if way.startswith('sliced') else {}
    score = SCORE if way == 'sliced, merged' else 0.
    for image, _, _ in images:
        found.append(api.predict(model, image, score_thr=score, **sliced))
    row = dict(seconds=round((time.perf_counter() - start) / len(images), 2), gib=round(gib('VmHWM:') - before, 2))
    return {**row, **(mean_iou if model.task == 'segmentation' else detection_scores)(model, images, found)}


def mean_iou(model: api.Model, images: list, found: list) -> dict[str, float]:
    number = len(model.classes)
    pairs = np.zeros((number, number), np.int64)
    for (_, labels, _), predicted in zip(images, found):
        counted = labels < number
        pairs += np.bincount(labels[counted].astype(int) * number + predicted[counted],
                             minlength=number**2).reshape(number, number)
    union = pairs.sum(0) + pairs.sum(1) - pairs.diagonal()
    return dict(mIoU=round(100 * float(np.mean((pairs.diagonal() / np.maximum(union, 1))[pairs.sum(1) > 0])), 2))


def detection_scores(model: api.Model, images: list, found: list) -> dict[str, float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    truth, results, seams, all_objects, number = COCO(), [], np.zeros(4, int), np.zeros(4, int), 0
    truth.dataset = dict(images=[], annotations=[], categories=[dict(id=1)])
    for (image, boxes, places), detections in zip(images, found):
        starts = np.array(slice_starts(len(image), SLICE, OVERLAP))
        inside = [((starts <= boxes[:, i, None]) & (boxes[:, i + 2, None] <= starts + SLICE)).any(1) for i in (0, 1)]
        shown = detections[detections.confidence >= SCORE].xyxy
        overlap = np.clip(np.minimum(shown[:, None, 2:], boxes[None, :, 2:])
                          - np.maximum(shown[:, None, :2], boxes[None, :, :2]), 0, None).prod(2)
        areas, truth_areas = (shown[:, 2:] - shown[:, :2]).prod(1), (boxes[:, 2:] - boxes[:, :2]).prod(1)
        iou = overlap / np.maximum(areas[:, None] + truth_areas - overlap, 1e-9)
        owner = iou.argmax(1) if len(boxes) else np.zeros(len(shown), int)
        part = overlap[np.arange(len(shown)), owner] >= 0.5 * areas
        for one in range(len(boxes)):
            parts = iou[part & (owner == one), one]
            kinds = np.array([1, len(parts) > 0, len(parts) > 1, len(parts) == 1 and parts[0] < 0.5])
            all_objects += kinds
            seams += kinds * (not (inside[0][one] and inside[1][one]))

        def photo_of(box: np.ndarray) -> int:
            middle = (box[:2] + box[2:]) / 2
            row, column = min(int(middle[1] / CELL[1]), round(len(image) / CELL[1]) - 1), int(middle[0]) // CELL[0]
            return number + row * (len(image) // CELL[0]) + min(column, len(image) // CELL[0] - 1)

        truth.dataset['images'] += [dict(id=number + i) for i in range(len(places))]
        for box in boxes:
            size = (box[2:] - box[:2]).tolist()
            truth.dataset['annotations'].append(dict(
                id=len(truth.dataset['annotations']) + 1, image_id=photo_of(box), category_id=1, iscrowd=0,
                bbox=[*box[:2].tolist(), *size], area=size[0] * size[1]))
        results += [[photo_of(box), *box[:2], *(box[2:] - box[:2]), score, 1]
                    for box, score in zip(detections.xyxy, detections.confidence)]
        number += len(places)
    with redirect_stdout(StringIO()):
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(np.array(results)), 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    row = dict(AP=round(100 * float(evaluation.stats[0]), 1), AP50=round(100 * float(evaluation.stats[1]), 1))
    for name, (total, hit, doubled, cut) in dict(all=all_objects, across_seams=seams).items():
        row[name] = dict(objects=int(total), found=int(hit), doubled=int(doubled), cut=int(cut))
    return row


def load(config: str, checkpoint: str, way: str, photos: int) -> api.Model:
    """Return the model for a way to predict images of a number of photographs."""
    options = {'model.backbone.attn_cfg': WINDOWS} if way == 'windowed' else {}
    model = api.load(config, checkpoint, device='cpu', cfg_options=options)
    if not way.startswith('sliced'):  # as many objects as all slices together may have
        for node in (model.network.test_cfg or {}).values() if model.task == 'detection' else ():
            node.update({key: node[key] * photos for key in ('nms_pre', 'max_per_img') if key in node})
        if model.task == 'detection':
            model.network.rpn_head.test_cfg.update(model.network.test_cfg.rpn)
            model.network.roi_head.test_cfg.update(model.network.test_cfg.rcnn)
    if way in ('whole', 'windowed'):
        steps = [dict(step) for step in model.cfg.test_dataloader.dataset.pipeline[1:]
                 if step['type'] != 'LoadAnnotations']
        resize = next(step for step in steps if step['type'] == 'Resize')
        del resize['scale']
        resize['scale_factor'] = TRAINED / SLICE
        model.pipeline = Compose(steps)
    return model


def run_cell(args: argparse.Namespace, way: str, side: int, answer: Any) -> None:
    torch.set_num_threads(1)
    number = NUMBER.get(side, 1)
    model = load(args.config, args.checkpoint, way, photos=(side // CELL[0]) * round(side / CELL[1]))
    photos = photographs(model)
    images = [mosaic(photos, side, seed) for seed in range(number)]
    answer.send(dict(task=model.task, way=way, side=side, images=number, **measure(model, images, way)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('out', type=Path)
    parser.add_argument('--sides', nargs='+', type=int, default=[1024, 2048, 4096, 8192])
    parser.add_argument('--ways', nargs='+', default=['resized', 'whole', 'windowed', 'sliced', 'sliced, merged'])
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    task = api.TASKS[Config.fromfile(args.config).default_scope]
    fork = multiprocessing.get_context('fork')
    for side in args.sides:
        for way in args.ways:
            if any((row['task'], row['way'], row['side']) == (task, way, side) for row in rows) or (
                    task == 'segmentation' and way == 'sliced, merged') or (way == 'whole' and side > WHOLE):
                continue
            ours, theirs = fork.Pipe()
            process = fork.Process(target=run_cell, args=(args, way, side, theirs))
            process.start()
            theirs.close()
            try:
                rows.append(ours.recv())
            except EOFError:  # killed, for memory perhaps
                rows.append(dict(task=task, way=way, side=side, failed=process.exitcode))
            process.join()
            print(rows[-1], flush=True)
            args.out.write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
