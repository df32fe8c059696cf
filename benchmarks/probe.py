"""Repeats experiments of the literature on a trained network: shifts, occlusion, shape, attacks, features, calibration.

    python benchmarks/probe.py CONFIG CHECKPOINT --data-root DIR --probe all
    python benchmarks/probe.py CONFIG CHECKPOINT --probe shift,shape --compare OTHER_CONFIG,OTHER_CHECKPOINT

Each probe is a file in benchmarks/probes, which names its source. Writes probes.json, and one picture a probe
with all networks.
"""
import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.registry import MODELS, init_default_scope
from probes import PROBES, Finding, NotApplicable, Subject, get_probe
from tqdm import tqdm

from cvt_dense.atomic import atomic_path, write_atomically
from cvt_dense.deploy.runtime import is_exported
from cvt_dense.engine.curves import new_figure, save_figure
from cvt_dense.errors import UserError
from cvt_dense.inference import TASKS, Model, load, predict
from cvt_dense.launch import command_line
from cvt_dense.launch.build import load_datasets
from cvt_dense.launch.outputs import add_force_argument, check_outputs

LEAST_SIDE = 16  # pixels: two for each patch of a grid of 8, the finest that a probe makes
NEEDED = dict(attribution='captum', features='sklearn')
DENSE = 8  # images of a detector or segmentor, unless --images is given


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--probe', default='all', metavar='NAME,...',
                        help=f'probes: {", ".join(PROBES)}; or all (default)')
    parser.add_argument('--compare', nargs='+', default=[], metavar='OTHER', help='further networks of the same '
                        'classes: CHECKPOINT, or CONFIG,CHECKPOINT of another config')
    parser.add_argument('--data-root', metavar='DIR', help="folder of the data instead of the config's data_root")
    parser.add_argument('--images', type=int, metavar='N', help='images of the test set, and as many of the training '
                        f'set, evenly taken (default: 1000, of detectors and segmentors {DENSE})')
    parser.add_argument('--out-dir', type=Path, default=Path('probes'), metavar='DIR',
                        help='folder of probes.json and the pictures (default: %(default)s)')
    parser.add_argument('--device', help='where to run (default: cuda if there is a GPU, otherwise cpu)')
    add_force_argument(parser)
    command_line.add_config_arguments(parser)
    return parser


def parse_probes(text: str) -> list[str]:
    """Return the names that ``--probe`` gives.

    Raises:
        UserError: one of them is unknown, or its package is missing.
    """
    names = list(PROBES) if text == 'all' else text.split(',')
    unknown = [name for name in names if name not in PROBES]
    if unknown:
        raise UserError(f'--probe {text}: {", ".join(unknown)} is unknown; allowed are {", ".join(PROBES)}, and all.')
    missing = [package for name, package in NEEDED.items() if name in names and find_spec(package) is None]
    if missing:
        raise UserError(f"--probe {text} needs {', '.join(missing)}: pip install 'cvt_dense[analysis]', or name other "
                        'probes.')
    return names


def build(args: argparse.Namespace, config: str, checkpoint: str, first: Subject | None = None) -> Subject:
    """Load a network and its images.

    Args:
        args: the command line.
        config, checkpoint: the network's files.
        first: the network that it is compared with.

    Raises:
        UserError: network, checkpoint and images do not fit each other, the images are too small, or the network has
            another task or other classes than the first.
    """
    if is_exported(checkpoint):
        raise UserError(f'{checkpoint} is an exported file, through which no gradient flows: give the checkpoint.')
    model = load(config, checkpoint, device=args.device, data_root=args.data_root, cfg_options=args.cfg_options)
    if model.task not in ('classification', *TASKS.values()):
        raise UserError(f'{config}: probes need a classifier, detector or segmentor; this is for {model.task}.')
    if first and (model.task, list(model.classes)) != (first.task, list(first.classes)):
        raise UserError(f'--compare {checkpoint}: it does {model.task} of {len(model.classes)} classes '
                        f'({_join(model.classes)}); {args.checkpoint} does {first.task} of {len(first.classes)} '
                        f'({_join(first.classes)}). Give networks of the same task and classes.')
    model.network.requires_grad_(False)

    def untrained() -> torch.nn.Module:
        init_default_scope(model.cfg.get('default_scope') or 'mmengine')
        torch.manual_seed(0)
        return MODELS.build(model.cfg.model)

    subject = Subject(Path(config).stem, model.network, model.task, model.classes, untrained=untrained,
                      data_root=args.data_root or model.cfg.get('data_root') or '')
    (_add_dense if model.task in TASKS.values() else _add_labelled)(args, config, model, subject)
    return subject


def _add_labelled(args: argparse.Namespace, config: str, model: Model, subject: Subject) -> None:
    data_sets = load_datasets(model.cfg, ['test'])
    classes = list(data_sets['test'].metainfo['classes'])
    outputs = model.network.num_classes
    known = [model.name(number) for number in range(outputs)] if model.classes else None
    if known and classes != known or len(classes) > outputs:
        raise UserError(f'{config}: the network has {outputs} classes ({_join(known or ())}), the data set has '
                        f'{len(classes)} ({_join(classes)}): give the --data-root whose classes it was trained on.')
    transform = model.cfg.test_dataloader.dataset.transform
    subject.images, subject.labels = _read(data_sets['test'], args.images or 1000)
    height, width = subject.images.shape[2:]
    if min(height, width) < LEAST_SIDE:
        raise UserError(f'{config}: test_dataloader.dataset.transform gives images of {height}x{width} pixels, and a '
                        f'patch of them would be less than two: input_size must be at least {LEAST_SIDE}.')
    training = (model.cfg.get('train_dataloader') or {}).get('dataset')
    if training and 'transform' in training and 'features' in parse_probes(args.probe):
        cfg = model.cfg.copy()
        cfg.train_dataloader = dict(cfg.train_dataloader, dataset=dict(training, transform=transform))
        subject.train = _read(load_datasets(cfg, ['train'])['train'], args.images or 1000)


def _join(names: Sequence[str]) -> str:
    return ', '.join(map(str, names[:4])) + (', ...' if len(names) > 4 else '')


def _read(data_set: Any, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images uint8 (N, 3, H, W) and labels (N, ), evenly taken; unreadable ones are left out."""
    chosen = np.linspace(0, len(data_set) - 1, min(number, len(data_set))).round().astype(int)
    samples = [sample for sample in map(data_set.__getitem__, chosen.tolist()) if sample['labels'] >= 0]
    if not samples:
        raise UserError(f'{data_set.data_root}: none of the images can be read. Give other data with --data-root.')
    images = torch.stack([torch.as_tensor(sample['inputs']) for sample in samples])
    return images, torch.tensor([sample['labels'] for sample in samples])


def _add_dense(args: argparse.Namespace, config: str, model: Model, subject: Subject) -> None:
    data_set = load_datasets(model.cfg, ['test'])['test']
    chosen = np.linspace(0, len(data_set) - 1, min(args.images or DENSE, len(data_set))).round().astype(int)
    subject.arrays = [model.read(data_set.get_data_info(i)['img_path']) for i in chosen.tolist()]
    subject.predict = lambda array: predict(model, array)
    shape = subject.arrays[0].shape
    samples = [model.pipeline(dict(img=array, img_shape=shape[:2], ori_shape=shape[:2], img_path='', img_id=0))
               for array in subject.arrays if array.shape == shape]
    with torch.no_grad():
        subject.images = model.network.data_preprocessor(pseudo_collate(samples), False)['inputs']


def build_all(args: argparse.Namespace) -> list[Subject]:
    """Return the network and those that it is compared with."""
    subjects = [build(args, args.config, args.checkpoint)]
    for other in args.compare:
        config, _, checkpoint = other.rpartition(',')
        subjects.append(build(args, config or args.config, checkpoint, subjects[0]))
    names = [subject.name for subject in subjects]
    for i, subject in enumerate(subjects):
        if names.count(subject.name) > 1:
            subject.name = f'{subject.name}_{i + 1}'
    return subjects


def draw(findings: dict[str, Finding], file: Path) -> None:
    """Draw what a probe found: curves in a panel for each network, or its pictures in a row for each network."""
    pictures = {name: found.pictures for name, found in findings.items() if found.pictures}
    curves = {name: found for name, found in findings.items() if found.curves}
    columns = max([len(curves), *map(len, pictures.values())])
    figure, axes = new_figure(bool(curves) + len(pictures), columns)
    for axis in axes.flat:
        axis.axis('off')
    for axis, (name, found) in zip(axes[0], curves.items()):
        axis.axis('on')
        for label, (x, y) in found.curves.items():
            axis.plot(range(len(x)) if x and isinstance(x[0], str) else x, y, 'o-', label=label)
            if x and isinstance(x[0], str):
                axis.set_xticks(range(len(x)), x, rotation=60)
        axis.set(title=name, xlabel=found.labels[0], ylabel=found.labels[1], ylim=(0, 105))
        axis.grid(alpha=0.3)
        if any(found.curves):
            axis.legend()
    for row, (name, shown) in zip(axes[bool(curves):], pictures.items()):
        for axis, (title, picture) in zip(row, shown.items()):
            axis.imshow(picture)
            axis.set_title(f'{name}: {title}' if len(findings) > 1 else title, fontsize=9)
    with atomic_path(file) as partial:
        save_figure(figure, partial)


def main() -> None:
    """Probe the networks that the command line names, and write numbers and pictures."""
    args = build_parser().parse_args()
    with command_line.report_errors():
        names = parse_probes(args.probe)
        if args.images is not None:
            command_line.check_value('--images', args.images, 1)
        table = args.out_dir / 'probes.json'
        check_outputs([table, *(args.out_dir / f'{name}.png' for name in names)], args.force)
        subjects = build_all(args)
    rows = []
    with command_line.report_errors(ValueError, OSError):
        for name in names:
            findings = {}
            for subject in subjects:
                start, others = time.time(), [other for other in subjects if other is not subject]
                row: dict[str, Any] = dict(probe=name, network=subject.name)
                with tqdm(desc=f'{name} of {subject.name}', unit=' images', leave=False, disable=None) as bar:
                    for one in subjects:
                        one.progress = bar.update
                    try:
                        findings[subject.name] = found = get_probe(name)(subject, others)
                        row.update(sentence=found.sentence, values=found.values)
                    except NotApplicable as error:
                        row.update(sentence=f'The probe {error}', values=None)
                rows.append(dict(row, seconds=round(time.time() - start, 1)))
                print(f'{name}, {subject.name}: {row["sentence"]} ({rows[-1]["seconds"]:.0f} s)', flush=True)
            if findings:
                draw(findings, args.out_dir / f'{name}.png')
        write_atomically(table, json.dumps(dict(
            config=Path(args.config).name, checkpoint=Path(args.checkpoint).name,
            compare=[','.join(Path(file).name for file in other.split(',')) for other in args.compare],
            images=len(subjects[0].labels) or len(subjects[0].arrays), threads=torch.get_num_threads(), rows=rows),
            indent=1) + '\n')
    print(f'numbers -> {table}, pictures -> {args.out_dir}/*.png')


if __name__ == '__main__':
    main()
