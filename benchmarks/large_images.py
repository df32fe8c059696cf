"""Large images whole, with windowed attention, and in slices: seconds, memory and accuracy of a segmentor.

    python benchmarks/large_images.py CONFIG CHECKPOINT OUT.json [--sides 1024 2048 4096 8192] [--ways ...]

CONFIG is a segmentor trained from configs/upernet_cvt13_custom.py with arch = 'nano'. Its test photographs, each
resized to 512x341 pixels and mirrored at random, are put together to squares. Slices of 384 pixels are resized to the
224 pixels that the network was trained with; "whole" and "windowed" resize the whole image by the same factor, and the
windows have 224x224 pixels. "resized" is the config's own test pipeline. Each measurement is a process of its own,
and memory is what it needs beyond the loaded model. OUT.json holds a list of rows; those that are there already are
kept, so that an interrupted run continues.
"""
import argparse
import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.dataset import Compose
from mmengine.registry import DATASETS

from cvt_dense import api

CELL, SLICE, OVERLAP, TRAINED = (512, 1024 / 3), 384, 0.2, 224
WINDOWS = [dict(type='cvt_dense.WindowedAttention', window_size=TRAINED // stride) for stride in (4, 8, 16)]
NUMBER = {1024: 8, 2048: 2}  # of mosaics, to have more photographs in small ones; else 1
WHOLE = 4096  # larger images take global attention a quarter of an hour and more


def gib(key: str) -> float:
    """VmRSS or VmHWM of this process."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 2**20


def photographs(model: api.Model) -> list[tuple[np.ndarray, Any]]:
    """The test photographs, resized, and their label maps."""
    dataset = DATASETS.build(dict(model.cfg.test_dataloader.dataset, pipeline=[]))
    photos, size = [], (CELL[0], round(CELL[1]))
    for info in dataset:
        image = model.read(info['img_path'])
        resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        labels = cv2.resize(cv2.imread(info['seg_map_path'], cv2.IMREAD_UNCHANGED), size,
                            interpolation=cv2.INTER_NEAREST)
        photos.append((resized, labels))
    return photos


def mosaic(photos: list[tuple[np.ndarray, Any]], side: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An image and its label map."""
    draw, order = random.Random(seed), []
    image, labels = np.zeros((side, side, 3), np.uint8), np.full((side, side), 255, np.uint8)
    for row in range(round(side / CELL[1])):
        for left in range(0, side, CELL[0]):
            order = order or draw.sample(photos, len(photos))
            photo, label = order.pop()
            top, step = min(round(row * CELL[1]), side - photo.shape[0]), -1 if draw.random() < 0.5 else 1
            area = slice(top, top + photo.shape[0]), slice(left, left + CELL[0])
            image[area], labels[area] = photo[:, ::step], label[:, ::step]
    return image, labels


def measure(model: api.Model, images: list, way: str) -> dict[str, Any]:
    """Predict all mosaics of one size; seconds of one image, memory, and accuracy."""
    Path('/proc/self/clear_refs').write_text('5')  # the peak so far is forgotten
    before, start, found = gib('VmRSS:'), time.perf_counter(), []
    sliced = dict(slice=SLICE, overlap=OVERLAP) if way == 'sliced' else {}
    for image, _ in images:
        found.append(api.predict(model, image, **sliced))
    row = dict(seconds=round((time.perf_counter() - start) / len(images), 2), gib=round(gib('VmHWM:') - before, 2))
    return dict(row, mIoU=mean_iou(model, images, found))


def mean_iou(model: api.Model, images: list, found: list) -> float:
    number = len(model.classes)
    pairs = np.zeros((number, number), np.int64)
    for (_, labels), predicted in zip(images, found):
        counted = labels < number
        pairs += np.bincount(labels[counted].astype(int) * number + predicted[counted],
                             minlength=number**2).reshape(number, number)
    union = pairs.sum(0) + pairs.sum(1) - pairs.diagonal()
    return round(100 * float(np.mean((pairs.diagonal() / np.maximum(union, 1))[pairs.sum(1) > 0])), 2)


def load(config: str, checkpoint: str, way: str) -> api.Model:
    """The model for a way to predict images."""
    options = {'model.backbone.attn_cfg': WINDOWS} if way == 'windowed' else {}
    model = api.load(config, checkpoint, device='cpu', cfg_options=options)
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
    model = load(args.config, args.checkpoint, way)
    photos = photographs(model)
    images = [mosaic(photos, side, seed) for seed in range(number)]
    answer.send(dict(task=model.task, way=way, side=side, images=number, **measure(model, images, way)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('out', type=Path)
    parser.add_argument('--sides', nargs='+', type=int, default=[1024, 2048, 4096, 8192])
    parser.add_argument('--ways', nargs='+', default=['resized', 'whole', 'windowed', 'sliced'])
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    fork = multiprocessing.get_context('fork')
    for side in args.sides:
        for way in args.ways:
            if any((row['way'], row['side']) == (way, side) for row in rows) or (way == 'whole' and side > WHOLE):
                continue
            ours, theirs = fork.Pipe()
            process = fork.Process(target=run_cell, args=(args, way, side, theirs))
            process.start()
            theirs.close()
            try:
                rows.append(ours.recv())
            except EOFError:  # killed, for memory perhaps
                rows.append(dict(task='segmentation', way=way, side=side, failed=process.exitcode))
            process.join()
            print(rows[-1], flush=True)
            args.out.write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
