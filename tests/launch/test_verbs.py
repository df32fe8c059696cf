"""train, test, load, predict and export from Python: several in one process, interrupted, and with mistakes."""
import multiprocessing
import signal
import threading

import numpy as np
import pytest
from tiny_training import ITERATIONS, assert_same_end, write_config

import cvt_dense
from cvt_dense.errors import UserError

pytestmark = pytest.mark.slow
EACH_EPOCH = {'train_cfg.val_interval': 1}
WORKER = {f'{name}_dataloader.{key}': 1 for name in ('train', 'test') for key in ('num_workers', 'persistent_workers')}


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp('verbs'))


@pytest.fixture(scope='module')
def whole(config):
    return cvt_dense.train(config, work_dir=config.parent / 'whole', options={**EACH_EPOCH, **WORKER})


def test_what_a_training_and_a_test_return(config, whole, tmp_path):
    assert (whole.stopped, whole.folder, whole.last.name) == (False, config.parent / 'whole', 'epoch_8.pth')
    scores = cvt_dense.test(config, whole.last, work_dir=tmp_path, options=WORKER)
    assert not multiprocessing.active_children()
    assert scores['accuracy/top1'] == whole.metrics['accuracy/top1'] > 60
    rows = [row for row in whole.curves if not row['evaluation']]
    assert [row['iteration'] for row in rows] == list(range(1, ITERATIONS + 1)) and all('loss' in row for row in rows)


def test_an_interrupt_saves_and_returns(config, whole, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    run = cvt_dense.train(config, work_dir=tmp_path / 'run', options=EACH_EPOCH,
                          callback=lambda iteration, metrics: iteration == 6 and signal.raise_signal(signal.SIGINT))
    assert run.stopped and run.last.name == 'preempted.pth' and signal.getsignal(signal.SIGINT) is before
    assert not cvt_dense.train(config, work_dir=tmp_path / 'run', options=EACH_EPOCH, resume='auto').stopped
    assert_same_end(tmp_path / 'run', whole.folder)


def test_a_callback_ends_a_training_in_a_thread(config, whole, tmp_path):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(cvt_dense.train(
        config, work_dir=tmp_path / 'run', options=EACH_EPOCH, callback=lambda iteration, metrics: iteration >= 9)))
    thread.start()
    thread.join()
    assert runs[0].stopped and runs[0].last.name == 'epoch_3.pth'
    cvt_dense.train(config, work_dir=tmp_path / 'run', options=EACH_EPOCH, resume='auto')
    assert_same_end(tmp_path / 'run', whole.folder)


@pytest.mark.parametrize('settings, named', [
    (dict(options={'model.num_classes': 3}), 'num_classes'), (dict(data_root='nowhere'), 'nowhere'),
    (dict(options={'default_hooks.stop.unknown': 1}), 'unknown'), (dict(amp='int8'), 'bf16'),
    (dict(options={'optim_wrapper.optimizer.unknown': 1}), 'unknown'), (dict(resume='a.pth'), 'a.pth'),
    (dict(options={'optim_wrapper.optimizer.type': 'AdamV'}), 'AdamV')])
def test_a_mistake_writes_nothing(config, tmp_path, settings, named):
    with pytest.raises(UserError, match=named):
        cvt_dense.train(config, work_dir=tmp_path / 'run', **settings).curves
    assert not (tmp_path / 'run').exists()


def test_arguments_that_the_verbs_do_not_take(config):
    """They would be found late or in the middle of an export, take the letters of a text for names, or do nothing."""
    model, image = cvt_dense.load('cvt_dense://cvt-nano'), np.zeros((64, 64, 3), np.uint8)
    for call, name in ((lambda: cvt_dense.train(config, 'print'), 'callback'), (lambda: cvt_dense.test(None), 'config'),
                       (lambda: cvt_dense.export(model, 'a.onnx', precision='int8', keep='head'), 'keep'),
                       (lambda: cvt_dense.export(model, 'a.onnx', calibrate=0), 'calibrate'),
                       (lambda: cvt_dense.export(model, 'a.onnx', report=None), 'report'),
                       (lambda: cvt_dense.export(model, 'a.onnx', size=(64, 64), dynamic=True), 'size'),
                       (lambda: cvt_dense.export(model, 'a.onnx', keep=['head']), 'keep'),
                       (lambda: cvt_dense.load('cvt_dense://cvt-nano', runtime='openvino'), 'runtime'),
                       (lambda: cvt_dense.predict(model, image, overlap=0.5), 'overlap'),
                       (lambda: cvt_dense.predict(model, image, score_thr=0.5), 'score_thr'),
                       (lambda: cvt_dense.predict(model, image, by_class=True), 'score_thr')):
        with pytest.raises(UserError, match=f'^{name}='):
            call()
