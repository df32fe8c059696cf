"""A published model predicts the same elsewhere, through a hub too; a hostile folder is refused."""
import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from load_tool import ROOT, run_tool
from mmengine.config import Config
from PIL import Image

from cvt_dense import inference
from cvt_dense.config import redirect_data_root
from cvt_dense.errors import UserError
from cvt_dense.published import CONFIG, LARGEST, MM_CONFIG, WEIGHTS, publish, read_config
from cvt_dense.weights import load_weights_file, select_weights

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def image(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp('image') / 'a.png'
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (96, 128, 3), np.uint8)).save(path)
    return path


@pytest.fixture(scope='module')
def published(nano, tmp_path_factory) -> dict[str, Path]:
    """By task, the folder of a published model, without a test."""
    folders = {task: tmp_path_factory.mktemp('published') / task for task in nano}
    for task, (config, checkpoint) in nano.items():
        run_tool('publish', config, checkpoint, folders[task], '--license', 'mit', '--no-test')
    return folders


def test_the_averaged_weights_are_published(tmp_path):
    averaged = dict.fromkeys('ab', torch.zeros(2))  # RTMDet shares tensors
    content = dict(state_dict=averaged, ema_state_dict={'module.a': torch.ones(2)})
    publish(read_config(f'{ROOT}/configs/cvt_nano_shapes.py'), select_weights(content), {}, tmp_path)
    assert all(map(torch.equal, safetensors.torch.load_file(tmp_path / WEIGHTS).values(), averaged.values()))


@pytest.mark.parametrize('task', ['classification', 'detection', 'segmentation'])
def test_predictions_are_equal_elsewhere(published, nano, image, task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    predicted, expected = (inference.predict(inference.load(*args, device='cpu'), image)
                       for args in ((published[task],), nano[task]))
    if task == 'detection':
        assert len(predicted) and predicted == expected
    else:
        np.testing.assert_array_equal(predicted, expected)
    assert set(load_weights_file(str(published[task]))) == {'state_dict', 'meta'}  # as load_from of a training


# In a process of its own, where only the config leads to this package.
DETECTORS = """
import numpy as np
from mmdet.apis import DetInferencer, inference_detector, init_detector
from mmengine import Config, runner
from sahi import AutoDetectionModel, predict
first = DetInferencer(*files, device='cpu', show_progress=False)
other = first(image, return_vis=True, no_save_vis=True)['predictions'][0]
found = inference_detector(init_detector(*files, device='cpu'), image).pred_instances
found = found.bboxes, found.scores, found.labels
sahi = AutoDetectionModel.from_pretrained('mmdet', files[1], config_path=files[0], confidence_threshold=0.)
cut = predict.get_sliced_prediction(image, sahi, 96, 128, perform_standard_pred=False, verbose=0).object_prediction_list
runner.Runner.from_cfg(Config(dict(Config.fromfile(files[0]), work_dir='.')))
whole = [(each.score.value, each.category.id, *each.bbox.to_xyxy()) for each in predict.get_prediction(
    image, sahi, verbose=0).object_prediction_list]
assert cut and np.allclose(sorted(whole), sorted((score, label, *box) for score, label, box in zip(
    other['scores'], other['labels'], other['bboxes'])))
from cvt_dense import inference
model = inference.load(files[0].replace('.py', '.json'), files[1], device='cpu')
expected = inference.predict(model, image, by_class=True)
for result in found, (other['bboxes'], other['scores'], other['labels']):
    assert all(map(np.allclose, result, (expected.xyxy, expected.confidence, expected.class_id)))
assert list(first.model.dataset_meta['classes']) == list(sahi.category_names) == list(model.classes)"""
SEGMENTORS = """
from mmseg.apis import MMSegInferencer, inference_model, init_model
first = MMSegInferencer(*files, device='cpu')
other = first(image, return_vis=True)
found = inference_model(init_model(*files, device='cpu'), image).pred_sem_seg.data[0].numpy()
from cvt_dense import inference
expected = inference.predict(inference.load(files[0].replace('.py', '.json'), files[1], device='cpu'), image)
assert len(first.model.dataset_meta['classes']) == 9
assert (found == expected).all() and (other['predictions'] == expected).all()"""


def test_programs_of_others_open_the_pair(published, image, tmp_path):
    coco, code = 'cvt_dense://cvt-nano-coco', ''
    run_tool('publish', coco, coco, tmp_path / 'coco', '--license', 'mit', '--no-test')
    for folder, program in ((tmp_path / 'coco', DETECTORS), (published['segmentation'], SEGMENTORS)):
        assert all(ast.literal_eval(line.value) for line in ast.parse((folder / MM_CONFIG).read_text()).body)
        given = [str(folder / MM_CONFIG), str(folder / WEIGHTS)], str(image)
        code += f'files, image = {given}{program}\n'
        with pytest.raises(ImportError, match=CONFIG):  # says what to give instead
            Config.fromfile(folder / CONFIG)
    subprocess.run([sys.executable, '-c', code], cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(ROOT)), check=True)


def test_card_has_the_metrics_of_the_test(nano, shapes, tmp_path):
    from huggingface_hub import ModelCard
    config, checkpoint = nano['classification']
    data = str(shapes / 'classification')
    dumped = Config.fromfile(config)
    redirect_data_root(dumped, data)  # the data root of the config is tested without --data-root
    dumped.dump(tmp_path / 'dumped.py')
    command = 'publish', tmp_path / 'dumped.py', checkpoint, tmp_path / 'mine', '--license', 'mit'
    run_tool(*command, '--data-root', tmp_path, rc=2)  # a test cannot start, and the same name may be tried again
    run_tool(*command)
    assert not any(str(tmp_path).encode() in file.read_bytes() for file in (tmp_path / 'mine').iterdir())
    card = ModelCard.load(tmp_path / 'mine' / 'README.md')
    top1 = {result.metric_type: result.metric_value for result in card.data.eval_results}['accuracy/top1']
    run_tool('test', tmp_path / 'mine', '--data-root', data, '--work-dir', tmp_path / 'test')
    tested = json.loads(next((tmp_path / 'test').glob('*/*.json')).read_text())
    assert tested['accuracy/top1'] == pytest.approx(top1, abs=1e-4)
    assert card.data.license == 'mit' and card.data.eval_results[0].dataset_name == 'validation set'


HOSTILE = {
    'a function of a module': dict(model=dict(type='os.system', command='true')),
    'a function of MMEngine': dict(model=dict(type='mmengine.load', file='a.pkl')),
    'text that mmcv evaluates': dict(model=dict(type='CvT', test_cfg=dict(nms=dict(type='print(1)')))),
    'an import': dict(model=dict(type='CvT'), custom_imports=dict(imports=['antigravity'])),
    'another file': dict(model=dict(type='CvT'), _base_='other.py'),
    'a path': dict(model=dict(type='CvT'), test_evaluator=dict(type='Accuracy', prefix='/etc/passwd')),
    'a path upwards': dict(model=dict(type='CvT'), test_evaluator=dict(type='Accuracy', prefix='a/../../b')),
    'a scope': dict(model=dict(type='CvT'), default_scope='os'),
    'a type that evaluates': dict(model=dict(type='CameraMotionCompensation'), default_scope='mmdet'),
    'a pickle': dict(model=dict(type='CvT'), test_evaluator=dict(type='Accuracy', prefix='data/annotations.PKL')),
    'a type that unpickles': dict(model=dict(type='OpenImagesChallengeDataset'), default_scope='mmdet')}


@pytest.mark.parametrize('content', [*map(json.dumps, HOSTILE.values()), '[' * 100_000, ' ' * (LARGEST + 1), '[]'],
                         ids=[*HOSTILE, 'depth', 'size', 'a list'])
def test_hostile_config_is_refused(tmp_path, published, content):
    (tmp_path / WEIGHTS).write_bytes((published['classification'] / WEIGHTS).read_bytes())
    (tmp_path / CONFIG).write_text(content)
    with pytest.raises(UserError, match=CONFIG):
        inference.load(tmp_path)


@pytest.mark.parametrize('line', [
    'import os', 'open("ran", "w")', 'x = open("ran", "w")', 'tta_model = {"type": "os"}'])
def test_a_config_in_python_is_not_run(tmp_path, published, line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, weights = tmp_path / MM_CONFIG, published['detection'] / WEIGHTS
    text = (published['detection'] / MM_CONFIG).read_text()
    config.write_text(text)  # without the folder's other files
    assert inference.load(config, weights).classes == inference.load(published['detection']).classes
    config.write_text(f'{text}\n{line}\n')
    with pytest.raises(UserError, match=MM_CONFIG):
        inference.load(config, weights)
    assert not Path('ran').exists()


def test_links_and_pickles_are_refused(tmp_path, published):
    (tmp_path / CONFIG).write_bytes((published['classification'] / CONFIG).read_bytes())
    (tmp_path / 'pytorch_model.bin').write_bytes(b'a pickle')
    with pytest.raises(UserError, match=WEIGHTS):
        inference.load(tmp_path)
    (tmp_path / WEIGHTS).symlink_to(published['classification'] / WEIGHTS)
    with pytest.raises(UserError, match=WEIGHTS):
        inference.load(tmp_path)


def test_a_snapshot_in_any_cache_of_a_hub_opens(tmp_path, published):
    snapshot, blobs = tmp_path / 'models--a--b/snapshots/1', tmp_path / 'models--a--b/blobs'
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, name in enumerate((CONFIG, WEIGHTS)):
        (blobs / str(number)).write_bytes((published['classification'] / name).read_bytes())
        (snapshot / name).symlink_to(f'../../blobs/{number}')
    (snapshot / MM_CONFIG).write_text('raise RuntimeError')  # is for others; this package never runs it
    assert inference.load(snapshot).task == 'classification'


def test_through_a_hub(nano, image, tmp_path, monkeypatch):
    """A folder takes the place of huggingface_hub's uploads and downloads."""
    hub = tmp_path / 'hub'

    def download(repository, name, local_files_only, **_):
        if local_files_only or not (hub / repository / name).is_file():
            raise OSError
        return str(hub / repository / name)

    monkeypatch.setattr('huggingface_hub.hf_hub_download', download)
    monkeypatch.setattr('huggingface_hub.HfApi.create_repo', lambda api, repository, **_: None)
    monkeypatch.setattr('huggingface_hub.HfApi.upload_folder', lambda api, repo_id, folder_path, **_: shutil.copytree(
        folder_path, hub / repo_id))
    run_tool('publish', *nano['classification'], 'hf://me/mine', '--license', 'mit', '--no-test')
    assert {path.name for path in (hub / 'me/mine').iterdir()} == {CONFIG, WEIGHTS, 'README.md'}
    run_tool('predict', 'hf://me/mine', image, '--out-dir', tmp_path / 'drawn')
    assert (tmp_path / 'drawn' / 'a.png').is_file()
