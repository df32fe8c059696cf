"""The page that runs a detector in a browser; it needs Chromium and the npm package onnxruntime-web."""
import functools
import http.server
import re
import shutil
import subprocess
import threading

import pytest
import torch
from load_tool import ROOT
from PIL import Image

from cvt_dense.deploy.check import random_images
from cvt_dense.deploy.runtime import open_exported

CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
RUNTIME = ROOT / 'node_modules/onnxruntime-web/dist'  # of "npm install onnxruntime-web"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a log; browsers import modules with JavaScript's type alone."""
    extensions_map = {'.mjs': 'text/javascript', '.js': 'text/javascript', '.html': 'text/html', '': 'image/png'}

    def log_message(self, *args):
        pass


@pytest.mark.skipif(CHROMIUM is None or not RUNTIME.is_dir(), reason='needs Chromium and onnxruntime-web')
@pytest.mark.parametrize('task', ['atss', 'detection'])
def test_page_finds_what_the_file_finds(network, tmp_path, task):
    exporter = network(task).exporter((64, 96))
    assert exporter.export(tmp_path / 'detector.onnx'), exporter.lines
    for file in ('ort.wasm.min.js', 'ort-wasm-simd-threaded.mjs', 'ort-wasm-simd-threaded.wasm'):
        shutil.copy(RUNTIME / file, tmp_path)
    shutil.copy(ROOT / 'docs/examples/detect.html', tmp_path)
    images = random_images((64, 96))
    Image.fromarray(images[0].permute(1, 2, 0).numpy()).save(tmp_path / 'photo.png')
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Handler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f'http://127.0.0.1:{server.server_port}/detect.html?model=detector.onnx&picture=photo.png'
    page = subprocess.run([CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=60000',
                           f'--user-data-dir={tmp_path / "profile"}', '--dump-dom', address],
                          capture_output=True, text=True, timeout=120).stdout
    server.shutdown()
    text = re.search(r'<pre id="found">(.*?)</pre>', page, re.S)[1]
    opened = open_exported(tmp_path / 'detector.onnx')
    mean, std = (torch.tensor(opened.metadata[key]).view(3, 1, 1) for key in ('mean', 'std'))
    found = opened((images.float() - mean) / std)
    kept = found['scores'] >= opened.metadata['score_thr']
    expected = torch.cat([found['scores'][:, None], found['boxes']], dim=1)[kept]
    printed = torch.tensor([[float(number) for number in line.split()[-5:]] for line in text.splitlines()])
    torch.testing.assert_close(printed, expected, rtol=0, atol=0.06)
