"""Publishes a trained model: a folder that runs elsewhere, or a repository on the Hugging Face hub.

    python tools/publish.py mine.py work_dirs/mine/iter_1000.pth published/mine --license apache-2.0
    python tools/publish.py mine.py work_dirs/mine/iter_1000.pth hf://USER/NAME --license apache-2.0
    python tools/predict.py published/mine a.jpg

The folder holds the averaged weights with the class names (model.safetensors), the parts of the config that testing
needs (mm_config.json), and a model card (README.md) with the metrics of a test of this folder. ``predict.py``,
``test.py``, ``export.py`` and ``diagnose.py`` take it, or ``hf://USER/NAME``, in place of config and checkpoint. The
programs of MMDetection and MMSegmentation, and SAHI, take mm_config.py and model.safetensors.
"""
import argparse
import re
import tempfile
from collections.abc import Sequence
from numbers import Real
from pathlib import Path

from ..atomic import write_atomically
from ..config import dicts, redirect_data_root
from ..errors import listed
from ..launch.runs import TestRun
from ..launch.start import test
from ..published import publish
from . import command_line
from .outputs import check_folder

PIPELINES = dict(classification='image-classification', detection='object-detection',
                 segmentation='image-segmentation')


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('target', metavar='FOLDER|hf://USER/NAME', help='a new folder, or a repository on the hub')
    parser.add_argument('--license', required=True, metavar='NAME',
                        help='licence of the weights as the hub names it: apache-2.0, mit, cc-by-nc-4.0, other, ...')
    parser.add_argument('--data-root', metavar='DIR', help="folder of the test data instead of the config's data_root")
    parser.add_argument('--no-test', action='store_true', help='publish without a test; the model card has no metrics')
    command_line.add_settings(parser, TestRun, 'options')
    return parser


def model_card(args: argparse.Namespace, name: str, task: str, classes: Sequence[str], metrics: dict[str, float],
               data_set: str) -> str:
    """Return the text of README.md, with the metadata that the hub reads.

    Args:
        args: command line.
        name: name of the model.
        task: see :class:`cvt_dense.inference.Model`.
        classes: class names.
        metrics: result of the test; empty without one.
        data_set: what it was tested on.
    """
    from huggingface_hub import EvalResult, ModelCardData
    pipeline = PIPELINES.get(task)
    results = [EvalResult(task_type=pipeline or task, dataset_type='custom', dataset_name=data_set, metric_type=key,
                          metric_value=round(value, 4)) for key, value in metrics.items()]
    data = ModelCardData(license=args.license, library_name='cvt_dense', pipeline_tag=pipeline,
                         model_name=name if results else None, eval_results=results or None)
    model = args.target if args.target.startswith('hf://') else name
    names = listed(classes, 50)
    lines = [f'---\n{data.to_yaml()}\n---', f'# {name}',
             f'A model for {task}, published with cvt_dense.',
             'This command predicts an image:',
             f'```bash\npython tools/predict.py {model} image.jpg\n```', f'It has {len(classes)} classes: {names}.']
    if metrics:
        rows = ''.join(f'\n| {key} | {value:.4g} |' for key, value in metrics.items())
        command = f'python tools/test.py {model} --data-root DIR'
        lines.append(f'Results of `{command}` on the {data_set}:\n\n| metric | value |\n|---|---|{rows}')
    return '\n\n'.join(lines) + '\n'


def write_folder(args: argparse.Namespace, folder: Path, name: str) -> None:
    """Write the published model with its model card.

    Args:
        args: command line.
        folder: new folder to write to.
        name: name of the model.

    Raises:
        UserError: config, checkpoint or test data are missing or do not fit each other.
    """
    from .. import inference
    from ..weights import load_weights_file, select_weights
    model = inference.load(args.config, args.checkpoint, device='cpu', cfg_options=args.options)
    content = load_weights_file(args.checkpoint)
    # MMSegmentation draws with the palette of Cityscapes without one, and asks for one of the classes' number.
    names = dict(classes=list(model.classes), palette=list(model.palette)[:len(model.classes)]) if model.classes else {}
    same, data_root = model.cfg.test_dataloader == model.cfg.get('val_dataloader'), None
    if any(node.get('data_root') for node in dicts(model.cfg.to_dict())):
        data_root = redirect_data_root(model.cfg, 'data')
    publish(model.cfg, select_weights(content), names, folder)
    metrics = {}
    if not args.no_test:
        with tempfile.TemporaryDirectory() as scratch:
            metrics = test(folder, work_dir=scratch, data_root=args.data_root or data_root)
    # MMDetection calls the AP of a class its precision.
    measured = {re.sub('(?<=^coco/)(.+)_precision$', r'\1_AP', key): float(value) for key, value in metrics.items()
                if isinstance(value, Real) and value >= 0}
    data_set = 'validation set' if same else 'test set'
    write_atomically(folder / 'README.md', model_card(args, name, model.task, model.classes, measured, data_set))


def main(argv: Sequence[str] | None = None) -> None:
    """Publish the model that the command line names."""
    args = build_parser().parse_args(argv)
    remote, target = args.target.startswith('hf://'), Path(args.target)
    with command_line.report_errors(OSError, ValueError):  # those of the hub are of these types
        if remote:
            from huggingface_hub import HfApi
            repository, api = args.target.removeprefix('hf://'), HfApi()
            api.create_repo(repository, exist_ok=True)
        else:
            check_folder(target)
            target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=None if remote else target.parent) as scratch:
            folder = Path(scratch, target.name)
            write_folder(args, folder, target.name)
            if remote:
                api.upload_folder(repo_id=repository, folder_path=folder, commit_message=f'Publish {target.name}')
            else:
                folder.replace(target)
        print(f'The model is published: {args.target}')
