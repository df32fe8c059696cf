r"""Trains the packaged detector's network on official labels and on the answers of DEIMv2-femto, on one CPU core.

    python benchmarks/distil_detector.py collect photos.pkl deimv2_hgnetv2_femto_coco.onnx --exclude held_out.txt \
        --sources coco*3=data/val2017:data/val2017.json voc=data/voc/train:data/voc/train.json flickr=data/flickr
    python benchmarks/distil_detector.py train photos.pkl second.pth --start first.pth --minutes 75

The first command collects the boxes of annotation files, and the teacher's boxes of the classes that these do not have.
``*3`` draws a source three times as often. The second writes averaged weights, which any config of the model loads;
``--trunk`` is the factor of the learning rate of all layers but the last one of the classes, which are often new.
"""
import argparse
import pickle
import time
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from mmdet.datasets import CocoDataset
from mmdet.registry import MODELS
from mmdet.structures.bbox import bbox_overlaps
from mmengine.config import Config
from mmengine.structures import InstanceData
from pycocotools.coco import COCO

from cvt_dense.engine.muon import Muon
from cvt_dense.recipes import recipe
from cvt_dense.weights import load_weights_file, select_weights

NAMES = list(CocoDataset.METAINFO['classes'])
VOC_NAMES = dict(aeroplane='airplane', diningtable='dining table', motorbike='motorcycle', pottedplant='potted plant',
                 sofa='couch', tvmonitor='tv')


def collect(args: argparse.Namespace) -> None:
    """Write the weight, path and boxes (class, x1, y1, x2, y2, score) of each photograph."""
    import openvino
    network = openvino.Core().compile_model(args.file, 'CPU', dict(INFERENCE_NUM_THREADS=1))
    excluded, rows = set(Path(args.exclude).read_text().split()) if args.exclude else set(), []
    for name, paths in (source.split('=') for source in args.sources):
        folder, _, annotations = paths.partition(':')
        coco = COCO(annotations) if annotations else COCO()
        kinds = {i: VOC_NAMES.get(c['name'], c['name']) for i, c in coco.cats.items()}
        boxes_of = {Path(image['file_name']).name: coco.imgToAnns[i] for i, image in coco.imgs.items()}
        for path in sorted(file for file in Path(folder).rglob('*.jpg') if file.name not in excluded):
            boxes = [(NAMES.index(kinds[a['category_id']]), x, y, x + w, y + h, 1.) for a in boxes_of.get(path.name, ())
                     for x, y, w, h in [a['bbox']] if kinds[a['category_id']] in NAMES and not a.get('iscrowd')]
            known = set(kinds.values()) if path.name in boxes_of else set()
            if not known.issuperset(NAMES):
                image = cv2.imread(str(path))
                view = cv2.resize(image, (416, 416))[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255
                answer = network(dict(images=view, orig_target_sizes=np.array([image.shape[1::-1]], np.int64)))
                boxes += [(label, *box, min(1.3 * score, 1.)) for label, box, score in zip(
                    *(answer[key][0] for key in ('labels', 'boxes', 'scores')))
                    if score > 0.2 and NAMES[int(label)] not in known]
            rows.append((float(name.partition('*')[2] or 1), str(path), np.array(boxes, np.float32).reshape(-1, 6)))
    Path(args.photos).write_bytes(pickle.dumps(rows))


def tile(rows: list, weights: np.ndarray, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a random part of a photograph, and its boxes."""
    _, path, boxes = rows[random.choice(len(rows), p=weights)]
    image, boxes, ratio = cv2.imread(path), boxes.copy(), np.exp(random.uniform(-0.12, 0.12))
    scale = np.array([ratio, 1 / ratio]) * size * np.exp(random.uniform(-0.29, 0.53)) / max(image.shape)
    room = size - scale * image.shape[1::-1]
    shift = random.uniform(np.minimum(0, room), np.maximum(0, room))
    if random.random() < 0.5:
        scale[0], shift[0] = -scale[0], size - shift[0]
    image = cv2.warpAffine(image, np.column_stack((np.diag(scale), shift)), (size, size), borderValue=(114, ) * 3)
    whole = np.sort(boxes[:, 1:5].reshape(-1, 2, 2) * scale + shift, axis=1)
    boxes[:, 1:5] = (cut := whole.clip(0, size)).reshape(-1, 4)
    area, left = ((corners[:, 1] - corners[:, 0]).prod(1) for corners in (whole, cut))
    return image, boxes[(left > 0.3 * area) & (left > 16)]


def crop(size: int, random: np.random.Generator, *photographs) -> tuple[np.ndarray, torch.Tensor]:
    """Return a tile, or in a quarter of the calls four of them, with other colours, and the boxes."""
    if random.random() < 0.25:
        tiles = [tile(*photographs, size // 2, random) for _ in range(4)]
        image = np.vstack([np.hstack([tiles[i][0], tiles[i + 1][0]]) for i in (0, 2)])
        boxes = np.concatenate([tiles[i][1] + np.float32([0, *[i % 2 * size // 2, i // 2 * size // 2] * 2, 0])
                                for i in range(4)])
    else:
        image, boxes = tile(*photographs, size, random)
    if random.random() < 0.7:
        table = np.arange(256)[:, None] * random.uniform(0.75, 1.25) * random.uniform(0.93, 1.07, 3)
        image = cv2.LUT(image, (table + random.uniform(-20, 20)).clip(0, 255).astype(np.uint8).reshape(256, 1, 3))
    return image, torch.from_numpy(boxes)


def losses(head: torch.nn.Module, scores: list, distances: list, targets: list) -> torch.Tensor:
    """Return the losses of mmdet's GFL, in which a class learns the IoU times the score of the box."""
    priors = head.prior_generator.grid_priors([x.shape[2:] for x in scores], device='cpu')
    sizes, priors, places, found = [len(level) for level in priors], torch.cat(priors), [], []
    points, strides = head.anchor_center(priors), (priors[:, 2:3] - priors[:, :1]) / 5
    scores, distances = (torch.cat([x.float().flatten(2).transpose(1, 2) for x in y], 1) for y in (scores, distances))
    for i, boxes in enumerate(targets):
        numbers = head.assigner.assign(InstanceData(priors=priors), sizes, InstanceData(
            bboxes=boxes[:, 1:5], labels=boxes[:, 0].long())).gt_inds
        places.append(F.pad(numbers.nonzero(), (1, 0), value=i))
        found.append(boxes[numbers[numbers > 0] - 1])
    (image, cell), boxes = torch.cat(places).T, torch.cat(found)
    corners, score, own = boxes[:, 1:5], boxes[:, 5], distances[image, cell]
    weights = scores.detach()[image, cell].sigmoid().amax(1).clamp(min=0.1) * score
    predicted = head.bbox_coder.decode(points[cell], head.integral(own) * strides[cell])
    wanted = head.bbox_coder.encode(points[cell] / strides[cell], corners / strides[cell], head.reg_max, 0.01)
    box = head.loss_bbox(predicted, corners, weight=weights, avg_factor=1.)
    box = box + 4 * head.loss_dfl(own.reshape(-1, 17), wanted.reshape(-1), weights.repeat_interleave(4), avg_factor=4.)
    quality = torch.zeros_like(scores)
    quality[image, cell, boxes[:, 0].long()] = bbox_overlaps(predicted.detach(), corners, is_aligned=True) * score
    gaps = scores.detach().sigmoid() - quality
    classes = F.binary_cross_entropy_with_logits(scores, quality, gaps**2, reduction='sum')
    return classes / max(len(cell), 4) + box / weights.sum().clamp(min=1)


def train(args: argparse.Namespace) -> None:
    """Train the model with Muon at a falling learning rate, with AVX-512 in bfloat16, and average its weights."""
    settings, rows = Config.fromfile(recipe('gfl_cvt_nano_coco.py')).model, pickle.loads(Path(args.photos).read_bytes())
    settings.backbone.frozen_stages = 0
    model, weights = MODELS.build(settings).train(), np.array([row[0] for row in rows])
    optimizer = Muon([dict(rate=rate, params=[
        p for name, p in model.named_parameters() if p.requires_grad and ('gfl_cls' in name) == last
    ]) for last, rate in ((True, 1.), (False, args.trunk))], lr=args.lr, nesterov=True, weight_decay=0.01)
    saved = load_weights_file(args.start)
    model.load_state_dict(saved['raw'] if 'raw' in saved else select_weights(saved))
    average, step = dict(select_weights(saved)), saved.get('step', 0)
    random, start = np.random.default_rng(step), time.time()
    while (done := (time.time() - start) / 60 / args.minutes) < 1:
        for group in optimizer.param_groups:
            group['lr'] = group['rate'] * args.lr * min(1, (step + 1) / 60) * (1 - done)
        images, boxes = zip(*(crop(args.size, random, rows, weights / weights.sum()) for _ in range(8)))
        inputs = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).flip(1)
        with torch.autocast('cpu', torch.bfloat16, enabled=torch.backends.cpu.get_cpu_capability() == 'AVX512'):
            outputs = model((inputs - model.data_preprocessor.mean) / model.data_preprocessor.std)
        losses(model.bbox_head, *outputs, boxes).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        for key, new in model.state_dict().items():  # the counters of BatchNorm are integers
            average[key] = torch.lerp(average[key].float(), new, max(2e-3, 10 / (10 + step))) if new.dim() else new
        if step % 100 == 0:
            torch.save(dict(state_dict=average, raw=model.state_dict(), step=step), args.file)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('job', 'photos', 'file'):
        parser.add_argument(name)
    for name, default in dict(exclude='', start='cvt_dense://cvt-nano-coco', minutes=75., lr=4e-3, trunk=0.3,
                              size=256).items():
        parser.add_argument(f'--{name}', type=type(default), default=default)
    parser.add_argument('--sources', nargs='+')
    dict(collect=collect, train=train)[(args := parser.parse_args()).job](args)
