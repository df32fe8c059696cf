"""What people do wrong on their first day, and right but unusual: the command, what they see, and when.

    python tests/mistakes.py OUT                     all of it, as a Markdown table
    python tests/mistakes.py OUT batch_size_0 ...    some of it

The commands run on generated shapes; templates are copied into OUT with their heads edited. Seconds are those until the
line is there, with all that this machine does besides. A command that does not say what it should, or ends with another
exit code, ends the script. OUT/run is theirs, and is deleted before each.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from first_day import ROOT, edit_head, on_shapes
from PIL import Image

CLASSIFIER = 'cvt13_custom'
BOXES, MASKS, LABEL_MAPS = (f'{name}_cvt13_custom' for name in ('fasterrcnn', 'maskrcnn', 'upernet'))
PLACE = re.compile(r'^\d\d/\d\d [\d:]+ - mmengine - (INFO|WARNING|ERROR) - |\x1b\[\d+m')


class Command(NamedTuple):
    """What is typed, and what comes of it.

    Attributes:
        args: of Python.
        seen: a regular expression of the line that tells.
        code: the exit code.
        env: environment variables.
        stop_at: a regular expression of the line at which the process group is sent SIGTERM.
    """
    args: tuple[Any, ...]
    seen: str
    code: int = 2
    env: dict[str, str] = {}
    stop_at: str | None = None


class Desk:
    """A folder with the shapes, edited templates and short runs that the commands need; made when asked for."""

    def __init__(self, out: Path):
        self.out = out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.heads = {name: lines for name, (lines, _) in on_shapes(self.out).items()}
        self.data = self.out / 'data'

    def config(self, template: str, name: str | None = None, text: str = '', **lines: Any) -> Path:
        """A copy of ``template`` with ``lines`` in its head and ``text`` below it."""
        file = self.out / f'{name or template}.py'
        file.write_text(edit_head(template, **{**self.heads[template], **lines}) + text)
        return file

    def trained(self, template: str) -> Path:
        """A checkpoint of a finished run."""
        run = self.out / 'runs' / template
        if not (run / 'iter_4.pth').exists():
            subprocess.run([sys.executable, 'tools/train.py', self.config(template), '--work-dir', run, '--overwrite'],
                           cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return run / 'iter_4.pth'

    def folders(self, *classes: str) -> Path:
        """Class folders of some of the classes."""
        root = self.out / '_'.join(classes)
        for split in ('train', 'val'):
            (root / split).mkdir(parents=True, exist_ok=True)
            for name in classes:
                if not (root / split / name).exists():
                    (root / split / name).symlink_to(self.data / 'classification' / split / name)
        return root

    def train(self, config: Path, seen: str, *options: Any, **changes: Any) -> Command:
        return Command(('tools/train.py', config, '--work-dir', self.out / 'run', *options), seen, **changes)

    def test(self, template: str, seen: str, *options: Any, **changes: Any) -> Command:
        return Command(('tools/test.py', self.config(template), self.trained(template), *options), seen, **changes)


# -- values out of range, and settings that nothing reads --------------------------------------------


def max_epoch_misspelt(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER, 'misspelt', 'train_cfg.update(max_epoch=3)\n'),
                      r"error: train_cfg.max_epoch=3: train_cfg has no 'max_epoch', and nothing reads it.")


def max_epochs_0(desk: Desk) -> Command:
    return Command(('tools/train.py', 'configs/cvt_nano_shapes.py', '--cfg-options', 'max_epochs=0'),
                   'error: train_cfg.max_epochs=0: it must be a whole number, 1 or more')


def batch_size_0(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER), 'error: train_dataloader.batch_size=0: it must be a whole number',
                      '--cfg-options', 'train_dataloader.batch_size=0')


def learning_rate_below_0(desk: Desk) -> Command:
    return desk.train(desk.config(BOXES), 'error: optim_wrapper.optimizer.lr=-1: it must be a number above 0',
                      '--cfg-options', 'optim_wrapper.optimizer.lr=-1')


def score_threshold_30(desk: Desk) -> Command:
    return Command(('tools/predict.py', desk.config(BOXES), desk.trained(BOXES), desk.data / 'detection/val',
                    '--score-thr', 30), 'error: --score-thr=30.0: it must be a number from 0 to 1')


def number_of_classes_that_nothing_reads(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER), 'error: --cfg-options num_classes: .* Did you mean model.num_classes[?]',
                      '--cfg-options', 'num_classes=3')


def length_at_a_configs_top(desk: Desk) -> Command:
    return desk.train(Path('configs/cvt_nano_shapes.py'), r'length: +1 epoch of', '--data-root',
                      desk.data / 'classification', '--cfg-options', 'max_epochs=1', 'batch_size=8', code=0)


def schedule_of_no_iteration(desk: Desk) -> Command:
    return desk.train(Path('configs/cvt_nano_shapes.py'), 'error: param_scheduler: end should be larger than begin',
                      '--data-root', desk.data / 'classification', '--cfg-options', 'max_epochs=1')


def batch_size_at_a_configs_top(desk: Desk) -> Command:
    return desk.train(desk.config(LABEL_MAPS), r'length: .* 3 images an iteration', '--cfg-options', 'batch_size=3',
                      code=0)


def one_image_a_step_under_batch_norm(desk: Desk) -> Command:
    return desk.train(desk.config(LABEL_MAPS, 'one_image', batch_size=1), 'error: train_dataloader.batch_size=1: ')


def loader_misspelt(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER), 'error: .*Did you mean train_dataloader.batch_size?', '--cfg-options',
                      'train_dataloder.batch_size=8')


# -- data that does not fit ----------------------------------------------------------------------------


def boxes_without_masks(desk: Desk) -> Command:
    lines = {key: value for key, value in desk.heads[BOXES].items() if key.startswith(('train', 'val'))}
    return desk.train(desk.config(MASKS, 'boxes', **lines),
                      'error: .*No masks: use fasterrcnn_cvt13_custom.py or retinanet')


def annotations_without_iscrowd(desk: Desk) -> Command:
    content = json.loads((desk.data / 'detection/annotations/instances_val.json').read_text())
    for annotation in content['annotations']:
        annotation.pop('iscrowd')
    (desk.out / 'home_made.json').write_text(json.dumps(content))
    return desk.train(desk.config(BOXES, 'home_made', val_ann__val_images=(str(desk.out / 'home_made.json'), 'val/')),
                      "error: .* annotations have no 'iscrowd', .* Add it to each: 0.")


def more_outputs_than_class_folders(desk: Desk) -> Command:
    config = desk.config(CLASSIFIER, 'three', data_root=str(desk.folders('arrow', 'ring', 'star')))
    return desk.train(config, 'error: the head has 5 outputs, but the training set has 3 class folders',
                      '--cfg-options', 'model.num_classes=5')


def other_classes_than_the_checkpoints(desk: Desk) -> Command:
    config = desk.config(CLASSIFIER, 'others', data_root=str(desk.folders('ring', 'star')))
    return desk.train(config, r'head: 2 of 2 classes kept by name \(ring, star\), 0 new', '--cfg-options',
                      f'load_from={desk.trained(CLASSIFIER)}', code=0)


def data_root_without_a_slash(desk: Desk) -> Command:
    return desk.train(desk.config(MASKS, 'no_slash', data_root=str(desk.data / 'detection')),
                      r'data: +train 8 images, val 4 images', code=0)


def unchecked(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER), '--no-check: data sets are not checked', '--no-check', code=0)


def absolute_file_names(desk: Desk) -> Command:
    for split in ('train', 'val'):
        content = json.loads((desk.data / f'detection/annotations/instances_{split}.json').read_text())
        for image in content['images']:
            image['file_name'] = str(desk.data / 'detection' / split / image['file_name'])
        (desk.out / f'absolute_{split}.json').write_text(json.dumps(content))
    files = {f'{split}_ann__{split}_images': (str(desk.out / f'absolute_{split}.json'), '')
             for split in ('train', 'val')}
    return desk.train(desk.config(MASKS, 'absolute', **files), r'data: +train 8 images, val 4 images', code=0)


def label_maps_of_one_bit(desk: Desk) -> Command:
    folder = desk.data / 'segmentation/annotations'
    for split in ('training', 'validation'):
        (desk.out / 'one_bit' / split).mkdir(parents=True, exist_ok=True)
        for file in (folder / split).iterdir():
            Image.open(file).point(lambda label: 255 * (label > 0)).convert('1').save(
                desk.out / 'one_bit' / split / file.name)
    config = desk.config(LABEL_MAPS, 'one_bit', classes=('background', 'shape'),
                         train_ann__train_images=(str(desk.out / 'one_bit/training'), 'images/training'),
                         val_ann__val_images=(str(desk.out / 'one_bit/validation'), 'images/validation'))
    return desk.train(config, r'data: .*2 classes: background, shape', code=0)


def images_of_a_test_without_annotations(desk: Desk) -> Command:
    content = json.loads((desk.data / 'detection/annotations/instances_val.json').read_text())
    content.pop('annotations')
    file = desk.out / 'test-dev.json'
    file.write_text(json.dumps(content))
    return desk.test(MASKS, 'results are saved in|Testing', '--cfg-options', f'test_dataloader.dataset.ann_file={file}',
                     f'test_evaluator.ann_file={file}', 'test_evaluator.format_only=True',
                     f'test_evaluator.outfile_prefix={desk.out / "submission"}', code=0)


# -- scores -------------------------------------------------------------------------------------------


def some_of_the_test_images(desk: Desk) -> Command:
    return desk.test(BOXES, 'Scores are of the 2 images that were loaded; the annotation file has 2 more',
                     '--cfg-options', 'test_dataloader.dataset.indices=2', code=0)


def augmented_at_the_tests_size(desk: Desk) -> Command:
    return desk.test(BOXES, r'--tta: tested at .*; the test pipeline has \(107, 64\)', '--tta', code=0)


def nothing_detected(desk: Desk) -> Command:
    return desk.test(BOXES, 'No detection in 4 images.* every score is 0', '--cfg-options',
                     'model.test_cfg.rcnn.score_thr=1.', code=0)


# -- runs -----------------------------------------------------------------------------------------------


def weights_without_a_connection(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER, 'published', arch='cvt-13'),
                      'error: hf://microsoft/cvt-13 is not in the cache .* the hub cannot be reached',
                      env=dict(HF_HOME=str(desk.out / 'no_cache'), HF_ENDPOINT='http://hub.invalid',
                               HF_HUB_OFFLINE='0'))


def from_scratch(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER, 'scratch', arch='cvt-13', pretrained=None, max_iters=1),
                      r'weights: +random \(from scratch\)', code=0)


def folder_of_another_run(desk: Desk) -> Command:
    run = desk.trained(CLASSIFIER).parent
    return Command(('tools/train.py', desk.config(CLASSIFIER), '--work-dir', run),
                   'error: .*holds another run .* --resume, .* --work-dir; --overwrite moves that one aside')


def learning_rate_changed_under_resume(desk: Desk) -> Command:
    run = desk.trained(BOXES).parent
    return Command(('tools/train.py', desk.config(BOXES), '--work-dir', run, '--resume', '--cfg-options',
                    'optim_wrapper.optimizer.lr=0.01'),
                   r'have no effect: optim_wrapper.optimizer.lr=0.01 \(it stays 0.001\)', 0)


def stop_signal_after_an_evaluation(desk: Desk) -> Command:
    return desk.train(desk.config(CLASSIFIER, 'long', max_iters=4000, text='train_cfg.update(val_interval=4)\n'),
                      r'SIGTERM: the run was saved after iteration \d+ and ends; continue it with --resume', code=0,
                      stop_at=r'\(val\)')


def error_in_ones_own_code(desk: Desk) -> Command:
    text = '\ndef wrong():\n    return None.nothing\n\n\nwrong()\n'
    return desk.train(desk.config(CLASSIFIER, 'own', text), r'error: AttributeError: .*own.py:\d+; CVT_DENSE_TRACEBACK')


def error_with_its_traceback(desk: Desk) -> Command:
    return error_in_ones_own_code(desk)._replace(seen='Traceback', env=dict(CVT_DENSE_TRACEBACK='1'))


MISTAKES: dict[str, Callable[[Desk], Command]] = {name: value for name, value in dict(globals()).items()
                                                  if getattr(value, '__annotations__', {}).get('desk') is Desk}
# What needs other hardware, or Python: a test of the suite.
TESTED = dict(
    configs_of_mmdet_and_mmseg=('launch/test_check_data.py', 'their_own_configs'),
    configs_whose_types_are_classes=('launch/test_pure_python_configs.py', 'trains_and_again'),
    files_of_cuda_tensors_without_cuda=('weights/test_loading.py', 'cuda_tensors'),
    weights_of_a_part_without_strict=('weights/test_loading.py', 'strict_false'),
    files_of_other_projects=('weights/test_attacks.py', 'mmengines_own_way'),
    one_gpu_a_task_under_slurm=('launch/test_devices.py', 'slurm'))
MISTAKES |= {name: lambda desk, file=file, words=words: Command(
    ('-m', 'pytest', '-q', f'tests/{file}', '-k', words), r'^\d+ passed', 0) for name, (file, words) in TESTED.items()}


def call(command: Command) -> tuple[str, float]:
    """Runs a command; returns the line that tells, and after how many seconds it was there."""
    args = [sys.executable, *map(str, command.args)]
    begin, seconds, lines, found, stopped = time.monotonic(), 0., [], '', False
    with subprocess.Popen(args, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True, env={**os.environ, 'MPLBACKEND': 'Agg', **command.env}) as process:
        for line in process.stdout:
            lines.append(line)
            if not found and re.search(command.seen, line):
                found, seconds = PLACE.sub('', line).strip(), time.monotonic() - begin
            if command.stop_at and not stopped and re.search(command.stop_at, line):
                os.killpg(process.pid, signal.SIGTERM)
                stopped = True
    if process.returncode != command.code or not found:
        raise SystemExit(f'{" ".join(args)}: exit code {process.returncode} instead of {command.code}, or without '
                         f'{command.seen!r}:\n{"".join(lines)[-6000:]}')
    return found, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', type=Path, metavar='OUT')
    parser.add_argument('names', nargs='*', choices=[*MISTAKES, []], metavar='NAME')
    args = parser.parse_args()
    desk = Desk(args.out)
    print('| | command | what one sees | s |\n|---|---|---|---|')
    for name in args.names or MISTAKES:
        shutil.rmtree(desk.out / 'run', ignore_errors=True)
        command = MISTAKES[name](desk)
        found, seconds = call(command)
        typed = ' '.join([*(f'{key}={value}' for key, value in command.env.items()), 'python',
                          *map(str, command.args)]).replace(f'{desk.out}/', '')
        cells = name.replace('_', ' '), f'`{typed}`', found.replace(f'{desk.out}/', ''), f'{seconds:.1f}'
        print(f'| {" | ".join(cell.replace("|", "&#124;") for cell in cells)} |', flush=True)


if __name__ == '__main__':
    main()
