"""ONNX keeps the outputs. torch.compile: tests/deploy/test_fuse.py and tests/models/test_recomputation.py."""
import pytest
import torch

from cvt_dense.deploy.fuse import fuse
from cvt_dense.models import CvT

TINY = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))  # compilers take seconds a block


def build(**options):
    model = CvT(TINY, **options).eval()
    for name, value in model.state_dict().items():
        if name.endswith(('running_mean', 'norm0.bias', 'norm1.bias', 'norm2.bias')):
            value.normal_(std=0.3)
    return model


def test_onnxruntime_gives_the_same_maps(tmp_path, max_differences):
    """Of a fused network, for images of any size."""
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    model = build()
    fuse(model)
    free = torch.export.Dim.DYNAMIC  # the example has 2 images, because export takes a size of 1 for a constant
    torch.onnx.export(
        model, (torch.randn(2, 3, 64, 96), ), tmp_path / 'cvt.onnx', dynamo=True, verbose=False,
        input_names=['image'], output_names=['stride4', 'stride8', 'stride16'],
        dynamic_shapes=({0: free, 2: free, 3: free}, ))
    session = onnxruntime.InferenceSession(tmp_path / 'cvt.onnx')
    for size in ((2, 64, 96), (1, 45, 66), (3, 128, 67)):
        x = torch.randn(size[0], 3, *size[1:])
        with torch.no_grad():
            expected = model(x)
        for i, actual in enumerate(session.run(None, dict(image=x.numpy()))):
            max_differences.check(f'ONNX, {size}, output {i}', torch.from_numpy(actual), expected[i], 1e-4)
