"""A loaded model in a server: threads, processes, types of images, memory, and the examples of the page."""
import io
import json
import os
import pickle
import re
import runpy
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
import torch
import uvicorn
from load_tool import ROOT, run_tool
from mmengine.registry import DefaultScope
from PIL import Image

from cvt_dense import inference as api
from cvt_dense.annotations import predictions
from cvt_dense.console import prints_to_log
from cvt_dense.errors import UserError
from cvt_dense.published import CONFIG

TASKS = ('classification', 'detection', 'segmentation')


@pytest.fixture(scope='module')
def photos() -> list[np.ndarray]:
    """Smooth images of one size that differ."""
    rng = np.random.default_rng(0)
    return [np.asarray(Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((96, 96)))
            for _ in range(12)]


def encoded(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array[..., ::-1]).save(stream, 'PNG')
    return stream.getvalue()


def same(first, second) -> bool:
    if isinstance(first, list):
        return first == second
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    return np.array_equal(first.xyxy, second.xyxy) and np.array_equal(first.confidence, second.confidence)


# -- threads and processes -----------------------------------------------------------------------------------

SERVER = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from cvt_dense.inference import load, predict

output, saved = sys.stdout, [files.split() for files in sys.argv[1:]]
with ThreadPoolExecutor(4) as pool:
    models = list(pool.map(lambda files: load(*files), saved * 2))
assert sys.stdout is output
image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
sizes = [len(predict(model, image)) for model in models]
assert sizes[:len(saved)] == sizes[len(saved):]
if not os.fork():
    signal.alarm(60)
    os._exit([len(predict(model, image)) for model in models] != sizes)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
def test_first_loads_in_threads_and_predictions_after_a_fork(nano, tmp_path):
    """PyTorch has several threads, those of which a forked process would wait for.

    A published model needs packages in an order that a set of them does not have under this hash seed.
    """
    run_tool('publish', *nano['detection'], tmp_path / 'published', '--license', 'mit', '--no-test')
    config = tmp_path / 'published' / CONFIG
    content = json.loads(config.read_text())  # MMDetection registers this type in MMEngine's registry
    config.write_text(json.dumps(dict(content, tta_model=dict(type='DetTTAModel'))))
    models = [tmp_path / 'published', *('{} {}'.format(*nano[task]) for task in ('classification', 'segmentation'))]
    env = dict(os.environ, OMP_NUM_THREADS='2', MKL_NUM_THREADS='2', PYTHONHASHSEED='0')
    result = subprocess.run([sys.executable, '-c', SERVER, *models], cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]


def test_a_thread_hides_its_own_prints_only(capsys):
    def hidden(number: int) -> None:
        with prints_to_log():
            print('hidden')

    output = sys.stdout
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(hidden, range(200)))
        with prints_to_log():
            print('hidden')
            pool.submit(print, 'shown').result()
    assert sys.stdout is output and capsys.readouterr().out == 'shown\n'


@pytest.mark.slow
@pytest.mark.parametrize('task', TASKS)
def test_threads_and_pickled_models_predict_alike(nano, photos, task):
    model = api.load(*nano[task], device='cpu')
    fresh = pickle.loads(pickle.dumps(model))
    alone = [api.predict(model, photo) for photo in photos[:6]]
    assert not same(alone[0], alone[1])
    with ThreadPoolExecutor(4) as pool:
        assert all(map(same, pool.map(lambda photo: api.predict(model, photo), photos[:6] * 2), alone * 2))
    for other in (fresh, pickle.loads(pickle.dumps(model))):
        assert same(api.predict(other, photos[0]), alone[0])
    with DefaultScope.overwrite_default_scope('mine'):  # as of a Runner that trains in this process
        half = api.load(*nano[task], device='cpu', amp='bf16')
        assert DefaultScope.get_current_instance().scope_name == 'mine'
    assert same(api.predict(pickle.loads(pickle.dumps(half)), photos[0]), api.predict(half, photos[0]))


# -- what predict takes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize('image', [
    torch.zeros(64, 64, 3), None, 7, (pixel for pixel in 'abc'), b'', b'<html>404</html>' * 1000,
    np.zeros((0, 64, 3), np.uint8), np.zeros((64, 1, 3), np.uint8), np.zeros((2, 9000, 3), np.uint8)[:1],
    np.zeros((64, 64), np.uint8)], ids=lambda image: f'{type(image).__name__}{getattr(image, "shape", "")}')
def test_other_images_are_refused_briefly(models, image):
    with pytest.raises(UserError) as refused:
        api.predict(models['segmentation'], [image])
    assert len(str(refused.value)) < 1000


def test_a_long_list_is_predicted_in_batches(models, photos):
    model, sizes = models['segmentation'], []
    hook = model.network.backbone.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    several = api.predict(model, [*photos, photos[0][:50]])
    hook.remove()
    assert len(several) == 13 and sizes == [8, 4, 1]


# -- predict.py over a folder -----------------------------------------------------------------------------------


def test_no_image_ends_a_run(nano, photos, tmp_path):
    """An image of one row, a name that is not UTF-8, and half a file."""
    folder = tmp_path / 'images'
    folder.mkdir()
    Image.new('RGB', (3000, 1)).save(folder / 'a.png')
    (folder / 'b.png').write_bytes(encoded(photos[0])[:300])
    run_tool('predict', *nano['segmentation'], folder, '--out-dir', tmp_path / 'none', '--save', 'masks', rc=1)
    for name, photo in ((os.fsdecode(b'gr\xfcn.png'), photos[0]), ('z.png', photos[1])):
        (folder / name).write_bytes(encoded(photo))
    output = run_tool('predict', *nano['detection'], folder, '--out-dir', tmp_path / 'out', '--save', 'coco',
                      '--score-thr', 0.01, rc=1)
    assert re.findall(r'/([\w\\]+).png -> .*: failed', output) == ['a', 'b'] and r'gr\udcfcn.png' in output
    saved = json.loads((tmp_path / 'out/coco/annotations/train.json').read_text())
    assert len(saved['images']) == 2 and {entry['image_id'] for entry in saved['annotations']} == {1, 2}
    assert (tmp_path / 'out/overview.png').exists() and len(list((tmp_path / 'out').glob('*.png'))) == 3


def test_predictions_are_saved_while_they_come(models, photos, tmp_path, monkeypatch):
    """Each label map at once, and the objects in a complete file again and again."""
    paths = [tmp_path / f'{i}.png' for i in range(3)]
    for path, photo in zip(paths, photos):
        path.write_bytes(encoded(photo))
    writer = predictions.PredictionWriter(tmp_path / 'masks', 'masks', ['a', 'b'], paths)
    writer.add(paths[0], (96, 96), np.ones((96, 96), np.uint8))
    assert np.asarray(Image.open(tmp_path / 'masks/labels/train/0.png')).all()
    monkeypatch.setattr(predictions, 'SECONDS', 0)
    writer = predictions.PredictionWriter(tmp_path / 'coco', 'coco', models['detection'].classes, paths)
    for number, path in enumerate(paths, 1):
        writer.add(path, (96, 96), api.predict(models['detection'], path))
        assert len(json.loads((tmp_path / 'coco/annotations/train.json').read_text())['images']) == number


# -- the examples -----------------------------------------------------------------------------------------------


def test_the_server_answers_each_request_for_its_own_image(nano, models, photos, monkeypatch):
    monkeypatch.setenv('MODEL', ' '.join(map(str, nano['classification'])))
    app = runpy.run_path(str(ROOT / 'docs/examples/serve.py'))['app']
    server = uvicorn.Server(uvicorn.Config(app, port=0))
    with ThreadPoolExecutor(9) as pool:
        running = pool.submit(server.run)
        try:
            while not server.started:
                assert not running.done()
                time.sleep(0.01)
            url = 'http://{}:{}'.format(*server.servers[0].sockets[0].getsockname())
            assert requests.get(f'{url}/health').json()['task'] == 'classification'
            expected = [[[name, score] for name, score in api.predict(models['classification'], photo)[:5]]
                        for photo in photos]
            assert len({str(answer) for answer in expected}) == len(photos)

            def ask(photo: np.ndarray) -> list[list]:
                upload = requests.post(f'{url}/predict', files=dict(image=encoded(photo)))
                return [[entry['name'], pytest.approx(entry['score'], abs=1e-6)] for entry in upload.json()]

            assert list(pool.map(ask, photos * 5)) == expected * 5
            assert requests.post(f'{url}/predict', files=dict(image=b'no image')).status_code == 422
        finally:
            server.should_exit = True
