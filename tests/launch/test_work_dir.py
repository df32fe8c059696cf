"""Work directories: one training in each; their files, their messages, and where tests of a run write."""
import re
import shlex
import shutil
from pathlib import Path

import pytest
from load_tool import run_tool
from mmengine.config import Config
from run_folder import missing, unexplained
from tiny_training import write_config

from cvt_dense.errors import UserError
from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.work_dir import claim, move_aside

FLAGS = ('--cfg-options', 'train_cfg.max_epochs=2', 'train_cfg.val_interval=1')


@pytest.fixture(scope='module')
def run(tmp_path_factory) -> tuple[Path, str]:
    """(folder, output) of a training: its work dir is ``folder / 'my run'``."""
    folder = tmp_path_factory.mktemp('runs')
    return folder, run_tool('train', write_config(folder), '--work-dir', folder / 'my run', *FLAGS)


def test_summary_its_commands_and_the_files_of_a_run(run):
    """The files of docs/reference/run_folder.md, line by line (other tasks: test_templates.py, tests/cli)."""
    folder, output = run
    assert unexplained(folder / 'my run') == []
    of_other_tests = ['preempted.pth', 'nonfinite_iterN_rankR.pth', 'test/TIME/TIME.log', 'test/TIME/TIME.json',
                      'test/TIME/vis_data/', 'predictions/']
    assert missing(folder / 'my run') == of_other_tests
    text = output[output.index('last:'):]
    results = re.findall(r'Epoch\(val\) \[(\d)\].*?accuracy/top1: ([\d.]+)', output)
    assert re.search(rf'last: +accuracy/top1 {float(results[-1][1]):.4g} \(epoch 2\), .*/my run/epoch_2.pth', text)
    value, file = re.search(r'best: +accuracy/top1 ([\d.]+), (.*/best_accuracy_top1_epoch_\d.pth)', text).groups()
    assert float(value) == max(float(result) for _, result in results) and Path(file).is_file()
    commands = {name: shlex.split(line) for name, line in re.findall(
        r'^ +(test|predict|errors): +python (.*)$', text, re.M)}

    def run_command(name, *options, **words):
        script, *arguments = [words.get(word, word) for word in commands[name]]
        return run_tool(Path(script).stem, *arguments, *options)

    metrics = r'accuracy/top1: .*raw/accuracy/loss: [\d.]+'  # of averaged and of raw weights
    tested, = re.findall(metrics, run_command('test', '--cfg-options', 'test_dataloader.batch_size=9'))
    assert tested.startswith(f'accuracy/top1: {float(value):.4f}') and tested in re.findall(metrics, output)
    assert len(list((folder / 'my run').glob('*/*.log'))) == len(list((folder / 'my run').glob('test/*/*.log'))) == 1
    run_command('errors', '--out-dir', folder / 'report')
    run_command('predict', IMAGE_OR_FOLDER=str(folder / 'data/val/dark/000.png'))
    assert (folder / 'my run/predictions/000.png').is_file()
    assert unexplained(folder / 'my run') == [] and missing(folder / 'my run') == of_other_tests[:2]


# -- what counts as another run ----------------------------------------------------------------------


@pytest.mark.slow
def test_overwrite_moves_the_other_run_aside(run, tmp_path, monkeypatch):
    folder, _ = run
    shutil.copytree(folder / 'my run', tmp_path / 'twice')
    (tmp_path / 'twice.old1').mkdir()
    args = 'train', folder / 'tiny.py', '--work-dir', tmp_path / 'twice', '--cfg-options', 'train_cfg.max_epochs=1'
    monkeypatch.setenv('RANK', '1')  # of a job whose tasks are runs of their own
    assert '--resume' in run_tool(*args, rc=2)
    other, own = folder / 'my run/epoch_2.pth', tmp_path / 'twice/epoch_2.pth'
    for flags in (('--resume', other), ('--cfg-options', 'resume=True', f'load_from={other}'),
                  ('--overwrite', '--cfg-options', f'model.backbone.init_cfg.checkpoint={own}')):
        assert '--work-dir' in run_tool(*args[:4], *flags, rc=2)
    run_tool(*args[:4], '--overwrite', *args[4:])
    assert (tmp_path / 'twice.old2/epoch_2.pth').read_bytes() == (folder / 'my run/epoch_2.pth').read_bytes()
    assert [path.name for path in (tmp_path / 'twice').glob('epoch_*')] == ['epoch_1.pth']
    (tmp_path / 'twice/last_checkpoint').unlink()
    assert 'Epoch(train) [1]' not in run_tool(*args[:4], '--cfg-options', 'resume=True', 'train_cfg.max_epochs=2')


def test_a_config_of_no_run_is_not_replaced(tmp_path):
    (tmp_path / 'work').mkdir()
    (tmp_path / 'work/tiny.py').write_text('mine')
    assert 'work/tiny.py' in run_tool('train', write_config(tmp_path), '--work-dir', tmp_path / 'work', rc=2)
    assert (tmp_path / 'work/tiny.py').read_text() == 'mine'


def test_restarts_go_on_with_what_the_first_start_began(tmp_path, monkeypatch):
    cfg = Config(dict(work_dir=str(tmp_path)), 'text', 'mine.py')
    (tmp_path / 'epoch_1.pth').touch()
    with pytest.raises(UserError, match='another run'):
        claim(cfg, TrainRun('mine.py'))
    monkeypatch.setenv('TORCHELASTIC_RESTART_COUNT', '1')
    with pytest.raises(UserError, match='incomplete'):  # it is looked at
        claim(cfg, TrainRun('mine.py'))
    move_aside(str(tmp_path))
    assert (tmp_path / 'epoch_1.pth').exists()
