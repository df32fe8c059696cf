"""Compare small detectors as people deploy them: latency of one image, and box mAP after equal CPU time of training.

    python benchmarks/latency.py train OUT [--minutes 4]
    python benchmarks/latency.py time OUT --threads 1

The data are the shapes of the demo, 400 images of 128 x 128 pixels with 8 classes. RetinaNet and Faster R-CNN are this
project's templates with arch='nano'. torchvision's detectors, and Ultralytics' if it is installed, start from random
weights; they need a torchvision whose compiled operators load. CPU time is that of one thread, so other work on the
machine changes it little. The results are files in OUT.
"""
import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'benchmarks'), str(ROOT / 'tests'), str(ROOT / 'tools')]

from templates_edited import edit_head
from transfer import SHAPES

from cvt_dense.recipes.shapes import CLASSES, generate

Detect = Callable[[Tensor], Any]
SIZES = 224, 320, 480, 640
ROUNDS = 11
OURS = {  # template, weights to start from, iterations of 8 images in 4 minutes
    'RetinaNet, CvT-nano': ('retinanet_cvt13_custom', 'published', 560),
    'RetinaNet, CvT-nano, random weights': ('retinanet_cvt13_custom', None, 560),
    'Faster R-CNN, CvT-nano': ('fasterrcnn_cvt13_custom', 'published', 480),
    'Faster R-CNN, CvT-nano, random weights': ('fasterrcnn_cvt13_custom', None, 480),
}
TORCHVISION = {  # function, and its settings for images of a size
    'SSDLite320, MobileNetV3': ('ssdlite320_mobilenet_v3_large', lambda size: {}),
    'Faster R-CNN, MobileNetV3-320': ('fasterrcnn_mobilenet_v3_large_320_fpn', lambda size: dict(
        min_size=size, max_size=size)),
}
ULTRALYTICS = 'YOLO11n'


def folder(out: Path, name: str) -> Path:
    """Return the folder of a detector's files."""
    return out / name.replace(',', '').replace(' ', '_')


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (
        resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def picture(path: Path, size: int | None = None) -> Tensor:
    """Return an image (3, H, W) in [0, 1], resized to a square if ``size`` is given."""
    image = Image.open(path).convert('RGB')
    image = image if size is None else image.resize((size, size))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def box_map(data: Path, detect: Callable[[Path], tuple[Tensor, Tensor, Tensor]]) -> float:
    """Return COCO's box mAP of ``detect``, which gives boxes x1, y1, x2, y2, scores and labels from 0."""
    truth = COCO(data / 'annotations/instances_val.json')
    categories, found = sorted(truth.cats), []
    for number, image in truth.imgs.items():
        for (x1, y1, x2, y2), score, label in zip(*(t.tolist() for t in detect(data / 'val' / image['file_name']))):
            found.append(dict(image_id=number, category_id=categories[int(label)], bbox=[x1, y1, x2 - x1, y2 - y1],
                              score=score))
    if not found:
        return 0.
    evaluation = COCOeval(truth, truth.loadRes(found), 'bbox')
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return float(evaluation.stats[0])


def train_ours(name: str, out: Path, data: Path) -> float:
    """Train a template by tools/train.py, export it, and return its box mAP."""
    template, weights, length = OURS[name]
    out.mkdir(parents=True, exist_ok=True)
    config, work = out / 'config.py', out / 'work'
    config.write_text(edit_head(
        template, arch='nano', pretrained=weights, max_iters=length, data_root=f'{data}/', **SHAPES))
    subprocess.run([sys.executable, ROOT / 'tools/train.py', config, '--work-dir', work, '--cfg-options',
                    f'train_cfg.val_interval={length}', f'default_hooks.checkpoint.interval={length}'], check=True)
    for suffix in ('onnx', 'xml'):
        subprocess.run([sys.executable, ROOT / 'tools/export.py', config, work / f'iter_{length}.pth',
                        out / f'model.{suffix}'], check=True)
    lines = map(json.loads, (next(work.glob('*/vis_data/scalars.json'))).read_text().splitlines())
    return [line['coco/bbox_mAP'] for line in lines if 'coco/bbox_mAP' in line][-1]


def build_torchvision(name: str, size: int = 320, weights: Path | None = None) -> nn.Module:
    """Return one of torchvision's detectors for the shapes' classes, with random weights or those of a file."""
    from torchvision.models import detection
    function, settings = TORCHVISION[name]
    model = getattr(detection, function)(weights=None, weights_backbone=None, num_classes=len(CLASSES) + 1,
                                         trainable_backbone_layers=6, **settings(size))
    if weights:
        model.load_state_dict(torch.load(weights, weights_only=True))
    return model


def train_torchvision(name: str, out: Path, data: Path, seconds: float) -> float:
    """Train one of torchvision's detectors for as many CPU seconds, and return its box mAP."""
    torch.manual_seed(0)
    random.seed(0)
    model = build_torchvision(name).train()
    truth = COCO(data / 'annotations/instances_train.json')
    label = {category: 1 + number for number, category in enumerate(sorted(truth.cats))}
    images = [(picture(data / 'train' / image['file_name']), truth.imgToAnns[number])
              for number, image in truth.imgs.items()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    begin, step = time.process_time(), 0
    while (passed := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group['lr'] = 1e-3 * min(1, (step + 1) / 30) * (1 + math.cos(math.pi * passed)) / 2
        inputs, targets = [], []
        for image, annotations in random.sample(images, 8):
            boxes = torch.tensor([a['bbox'] for a in annotations]).view(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            if random.random() < .5:
                image = image.flip(2)
                boxes[:, [0, 2]] = image.shape[2] - boxes[:, [2, 0]]
            inputs.append(image)
            targets.append(dict(boxes=boxes, labels=torch.tensor([label[a['category_id']] for a in annotations])))
        loss = sum(model(inputs, targets).values())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.)
        optimizer.step()
        step += 1
    print(f'{name}: {step} steps, loss {float(loss):.3f}')
    out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), out / 'weights.pth')
    model.eval()

    def detect(path: Path) -> tuple[Tensor, Tensor, Tensor]:
        with torch.inference_mode():
            result = model([picture(path)])[0]
        return result['boxes'], result['scores'], result['labels'] - 1

    return box_map(data, detect)


def train_ultralytics(out: Path, data: Path, seconds: float) -> float:
    """Train YOLO11n for as many epochs as fit into the CPU seconds, and return its box mAP."""
    from ultralytics import YOLO

    from cvt_dense.annotations import convert
    labels, shapes = out / 'data', convert.read(data, 'coco')
    for sample in shapes.samples:
        for one in sample.objects:
            one.pop('segmentation', None)  # boxes alone
    convert.write(shapes, labels, 'yolo')
    settings = dict(data=str(labels / 'data.yaml'), imgsz=128, batch=8, workers=0, val=False, plots=False, amp=False,
                    project=str(out), exist_ok=True, verbose=False, pretrained=False, optimizer='AdamW', lr0=1e-3)
    begin = time.process_time()
    YOLO('yolo11n.yaml').train(epochs=1, name='probe', **settings)
    epochs = max(1, int(seconds / (time.process_time() - begin)))
    YOLO('yolo11n.yaml').train(epochs=epochs, name='work', **settings)
    model = YOLO(out / 'work/weights/last.pt')

    def detect(path: Path) -> tuple[Tensor, Tensor, Tensor]:
        boxes = model.predict(str(path), imgsz=128, conf=0.001, verbose=False)[0].boxes
        return boxes.xyxy, boxes.conf, boxes.cls

    return box_map(data, detect)


def train(args: argparse.Namespace) -> None:
    """Train every detector that has no result yet, and write its mAP and CPU minutes."""
    torch.set_num_threads(1)
    os.environ['OMP_NUM_THREADS'] = '1'
    data = generate(args.out / 'generated', train_per_class=1, val_per_class=1) / 'detection'
    for name in (*OURS, *TORCHVISION, ULTRALYTICS):
        out = folder(args.out, name)
        result = out / 'result.json'
        if result.exists():
            continue
        begin = cpu_seconds()
        if name in OURS:
            score = train_ours(name, out, data)
        elif name in TORCHVISION:
            score = train_torchvision(name, out, data, args.minutes * 60)
        else:
            try:
                score = train_ultralytics(out, data, args.minutes * 60)
            except ImportError as error:
                print(f'{name} is left out: {error}')
                continue
        found = dict(name=name, box_mAP=score, cpu_minutes=(cpu_seconds() - begin) / 60)
        result.write_text(json.dumps(found))
        print(found, flush=True)


def columns(out: Path, size: int) -> dict[str, Detect]:
    """Return a function of an image (3, size, size) in [0, 1] for each detector and runtime."""
    from cvt_dense.cli.random_batch import random_batch
    from cvt_dense.deploy.cpu import use_cpu_kernels
    from cvt_dense.deploy.fuse import fuse
    from cvt_dense.deploy.runtime import open_exported
    from cvt_dense.inference import load
    found: dict[str, Detect] = {}
    for name, (_, weights, length) in OURS.items():
        if weights is None:
            continue
        files = folder(out, name)
        network = load(files / 'config.py', files / f'work/iter_{length}.pth', device='cpu').network
        fuse(network)
        use_cpu_kernels(network)
        samples = random_batch(network, 1, (size, size), 'cpu')['data_samples']
        preprocessor = network.data_preprocessor
        exported = {runtime: open_exported(files / f'model.{suffix}')
                    for suffix, runtime in (('onnx', 'ONNX Runtime'), ('xml', 'OpenVINO'))}
        calls = {'PyTorch, fused': partial(network.predict, batch_data_samples=samples), **exported}
        for runtime, call in calls.items():
            found[f'{name}: {runtime}'] = lambda image, call=call, preprocessor=preprocessor: call(
                (image[None] * 255 - preprocessor.mean) / preprocessor.std)
    for name in TORCHVISION:
        if 'SSD' not in name or size == 320:
            model = build_torchvision(name, size, folder(out, name) / 'weights.pth').eval()
            found[f'{name}: PyTorch'] = lambda image, model=model: model([image])
    weights = folder(out, ULTRALYTICS) / 'work/weights/last.pt'
    if weights.exists():
        from ultralytics import YOLO
        yolo = YOLO(weights)
        found[f'{ULTRALYTICS}: PyTorch'] = lambda image: yolo.predict(image[None], imgsz=size, verbose=False)
    return found


def measure(args: argparse.Namespace) -> None:
    """Write the median of the milliseconds of each detector at each size, measured in turns."""
    paths = sorted((args.out / 'generated/detection/val').glob('*.png'))[:ROUNDS]
    rows: dict[str, dict[int, float]] = {}
    for size in SIZES:
        torch.set_num_threads(args.threads)
        detectors = columns(args.out, size)
        times: dict[str, list[float]] = {name: [] for name in detectors}
        with torch.inference_mode():
            for number, path in enumerate([paths[0]] * 2 + paths):
                image = picture(path, size)
                for name, detect in detectors.items():
                    torch.set_num_threads(args.threads)  # Ultralytics sets another number
                    begin = time.perf_counter()
                    detect(image)
                    if number >= 2:  # two rounds to warm up
                        times[name].append(time.perf_counter() - begin)
        for name, values in times.items():
            rows.setdefault(name, {})[size] = statistics.median(values) * 1000
    (args.out / f'threads{args.threads}.json').write_text(json.dumps(rows, indent=1))
    print(f'| {args.threads} thread(s), ms | ' + ' | '.join(map(str, SIZES)) + ' |')
    print('|---' * (len(SIZES) + 1) + '|')
    for name, row in rows.items():
        print(f'| {name} | ' + ' | '.join(f'{row[size]:.1f}' if size in row else '–' for size in SIZES) + ' |')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    commands = parser.add_subparsers(required=True)
    for name, function in dict(train=train, time=measure).items():
        command = commands.add_parser(name)
        command.add_argument('out', type=Path, metavar='OUT')
        command.set_defaults(run=function)
        if name == 'train':
            command.add_argument('--minutes', type=float, default=4, help='CPU time of a training')
        else:
            command.add_argument('--threads', type=int, default=1)
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.run(args)


if __name__ == '__main__':
    main()
