"""Runs that are killed, stopped, or out of disk end with the weights of a run that was not.

``PYTHONPATH=.:tests python tests/engine/test_faults.py 20`` kills one run 20 times at random moments and compares its
end with that of an undisturbed run, bit for bit; the tests below do the same with fewer kills.
tests/engine/checkpoint/test_resume.py disturbs runs inside one process.
"""
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from tiny_training import EPOCHS, call, differences, kill_repeatedly, load, start, write_config

from cvt_dense.engine.checkpoint import find_checkpoint

LAST = f'epoch_{EPOCHS}.pth'
WITHIN = 0.9  # seconds: about one epoch and one evaluation


def train(folder: Path, work_dir: Path, *flags: str):
    return ('tools/train.py', folder / 'tiny.py', '--work-dir', work_dir, *flags)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('faults')
    write_config(folder)
    return folder


@pytest.fixture(scope='module')
def undisturbed(folder):
    call(*train(folder, folder / 'undisturbed'), output=folder / 'undisturbed.txt')
    return folder / 'undisturbed'


def test_killed_at_random_moments(folder, undisturbed):
    work_dir = folder / 'killed'
    # On a fast machine the run may end before the second.
    assert kill_repeatedly(train(folder, work_dir, '--resume'), work_dir, kills=2, within=WITHIN) >= 1
    assert differences(undisturbed / LAST, work_dir / LAST) == []
    assert sorted(path.name for path in work_dir.glob('*.pth')) == sorted(
        path.name for path in undisturbed.glob('*.pth'))
    # One folder of logs, in which every epoch's end can be found, since the last start without a checkpoint.
    logs = list(work_dir.glob('*/*.log'))
    with_curves = sorted(work_dir.glob('*/vis_data/scalars.json'))
    begun = sum('training from the beginning' in output.read_text() for output in folder.glob('killed_*.txt'))
    assert 1 <= len(with_curves) <= begun and with_curves[-1].parts[-3] in {log.parent.name for log in logs}
    curves = with_curves[-1].read_text()
    assert all(f'"step": {step}}}' in curves for step in range(1, 25))


def test_killed_while_writing_a_checkpoint(folder, undisturbed):
    work_dir = folder / 'writing'
    with start(*train(folder, work_dir), output=folder / 'writing.txt') as process:
        process.wait_for(lambda: (work_dir / 'last_checkpoint').exists())
        process.wait_for(lambda: any(work_dir.glob('.partial-epoch_*')), pause=0.)
        os.killpg(process.popen.pid, signal.SIGKILL)
    # The old checkpoint is deleted after the new one is complete, although only one is kept.
    saved = find_checkpoint(str(work_dir))
    assert load(saved)['meta']['epoch'] >= 1
    call(*train(folder, work_dir, '--resume'), output=folder / 'writing_end.txt')
    assert differences(undisturbed / LAST, work_dir / LAST) == []
    assert not list(work_dir.glob('.partial-*'))


def test_killed_after_an_evaluation_that_was_made_up_for(folder, undisturbed):
    """The checkpoint that both kills leave was written before that evaluation and does not contain the best score."""
    work_dir = folder / 'made_up_for'
    slowly = '--cfg-options', 'val_dataloader.batch_size=1'
    with start(*train(folder, work_dir, *slowly), output=folder / 'made_up_for_0.txt') as process:
        process.wait_for_text('Epoch(val) [4][  1/100]')
        os.killpg(process.popen.pid, signal.SIGKILL)
    with start(*train(folder, work_dir, *slowly, '--resume'), output=folder / 'made_up_for_1.txt') as process:
        process.wait_for(lambda: (work_dir / 'last_evaluation').exists(), pause=0.)
        os.killpg(process.popen.pid, signal.SIGKILL)
    call(*train(folder, work_dir, *slowly, '--resume'), output=folder / 'made_up_for_2.txt')
    assert differences(undisturbed / LAST, work_dir / LAST) == []
    assert sorted(path.name for path in work_dir.glob('*.pth')) == sorted(
        path.name for path in undisturbed.glob('*.pth'))


def test_disk_full_while_writing_a_checkpoint(folder, undisturbed):
    work_dir = folder / 'full'
    with start(*train(folder, work_dir), output=folder / 'full.txt') as process:
        process.wait_for(lambda: (work_dir / 'epoch_1.pth').exists())
        # From now on, no file of the process may grow beyond 64 KiB: its write fails half way.
        resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (2**16, 2**16))
        output = process.finish(rc=1)
    assert re.search(r'OSError: .* \S+epoch_\d\.pth could not be written', output)
    assert not list(work_dir.glob('.partial-*'))
    saved = find_checkpoint(str(work_dir))
    assert load(saved)['meta']['epoch'] >= 1
    call(*train(folder, work_dir, '--resume'), output=folder / 'full_end.txt')
    assert differences(undisturbed / LAST, work_dir / LAST) == []


def test_told_to_stop_inside_an_epoch(folder, undisturbed):
    """With worker processes, of which a signal to the whole group must not take any."""
    work_dir = folder / 'stopped'
    flags = ('--cfg-options', 'train_dataloader.num_workers=1')
    with start(*train(folder, work_dir, *flags), output=folder / 'stopped.txt') as process:
        process.wait_for_text('Epoch(train) [2][1/3]')
        os.killpg(process.popen.pid, signal.SIGTERM)
        output = process.finish()
    saved = load(work_dir / 'preempted.pth')['meta']
    assert f'SIGTERM: the run was saved after iteration {saved["iter"]} and ends' in output
    assert (work_dir / 'last_checkpoint').read_text() == str(work_dir / 'preempted.pth')
    output = call(*train(folder, work_dir, *flags, '--resume'), output=folder / 'stopped_end.txt')
    assert len(re.findall(r'Epoch\(train\) ', output)) == 24 - saved['iter']
    assert differences(undisturbed / LAST, work_dir / LAST) == []
    assert sorted(path.name for path in work_dir.glob('*.pth')) == sorted(
        path.name for path in undisturbed.glob('*.pth'))


def test_torchrun_restarts_and_resumes_after_the_loss_of_a_process(folder, undisturbed, tmp_path):
    (tmp_path / 'dying.py').write_text(
        'import os, signal\n'
        'from mmengine.hooks import Hook\n'
        'from mmengine.registry import HOOKS\n'
        '@HOOKS.register_module()\n'
        'class Dying(Hook):\n'
        '    def before_train_iter(self, runner, batch_idx, data_batch=None):\n'
        "        first_start = os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'\n"
        '        if first_start and runner.rank == 1 and runner.epoch == 3:\n'
        '            os.kill(os.getpid(), signal.SIGKILL)\n')
    config = tmp_path / 'dying_config.py'
    config.write_text(f'_base_ = {str(folder / "tiny.py")!r}\n'
                      "custom_imports = dict(imports=['dying'])\n"
                      "default_hooks = dict(dying=dict(type='Dying'))\n")
    work_dir = tmp_path / 'work'
    output = call('tools/dist_train.sh', config, 2, '--work-dir', work_dir, '--cfg-options',
                  'train_dataloader.batch_size=6', output=tmp_path / 'output.txt', MAX_RESTARTS='1',
                  PYTHONPATH=str(tmp_path))
    assert len(re.findall(r'resumed epoch: [23], iter: ', output)) == 1
    end, reference = load(work_dir / LAST), load(undisturbed / LAST)
    assert end['meta']['iter'] == reference['meta']['iter'] and end['meta']['world_size'] == 2


def main(kills: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix='faults_'))
    write_config(folder)
    call(sys.executable, *train(folder, folder / 'undisturbed'), output=folder / 'undisturbed.txt')
    done, runs = 0, 0
    while done < kills:  # a run of seconds is over after some kills; then another one begins
        work_dir = folder / f'killed{runs}'
        command = sys.executable, *train(folder, work_dir, '--resume')
        done += kill_repeatedly(command, work_dir, kills - done, WITHIN, seed=runs)
        runs += 1
        different = differences(folder / 'undisturbed' / LAST, work_dir / LAST)
        print(f'{done} kills, {runs} runs: {len(different)} values of the last checkpoint differ', flush=True)
        if different:
            sys.exit(f'{folder}: {different[:5]}')
    shutil.rmtree(folder)


if __name__ == '__main__':
    os.environ['CUDA_VISIBLE_DEVICES'] = ''
    main(int(sys.argv[1]))
