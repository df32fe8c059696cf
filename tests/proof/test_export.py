"""torch.compile and ONNX keep the outputs."""
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


def test_compiled_outputs_are_the_plain_ones(max_differences):
    model = build()
    compiled = torch.compile(model, backend='aot_eager', fullgraph=True)  # tests/models/test_fuse.py has inductor
    for size in ((64, 64), (45, 66)):  # the second size compiles shapes as variables
        x = torch.randn(1, 3, *size)
        with torch.no_grad():
            for i, (actual, expected) in enumerate(zip(compiled(x), model(x), strict=True)):
                max_differences.check(f'torch.compile, {size[0]}x{size[1]}, output {i}', actual, expected, 1e-5)


def test_compiled_training_step_is_the_plain_one(max_differences):
    plain, copy = build().train(), build().train()
    copy.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 48, 48)
    for model in (plain, torch.compile(copy, backend='aot_eager', fullgraph=True)):
        sum(out.square().mean() for out in model(x)).backward()
    worst = max(zip(plain.parameters(), copy.parameters()), key=lambda pair: (pair[0].grad - pair[1].grad).abs().max())
    max_differences.check('torch.compile, training, worst gradient', worst[1].grad, worst[0].grad, 1e-5)
    for a, b in zip(plain.buffers(), copy.buffers()):
        torch.testing.assert_close(b, a, rtol=0, atol=1e-6)


@pytest.mark.parametrize('dynamic, fused', [(False, True), (True, False)], ids=['fixed-fused', 'dynamic-plain'])
def test_onnxruntime_gives_the_same_maps(tmp_path, dynamic, fused, max_differences):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    model = build()
    if fused:
        fuse(model)
    free = torch.export.Dim.DYNAMIC  # the example has 2 images, because export takes a size of 1 for a constant
    torch.onnx.export(
        model, (torch.randn(2, 3, 64, 96), ), tmp_path / 'cvt.onnx', dynamo=True, verbose=False,
        input_names=['image'], output_names=['stride4', 'stride8', 'stride16'],
        dynamic_shapes=({0: free, 2: free, 3: free}, ) if dynamic else None)
    session = onnxruntime.InferenceSession(tmp_path / 'cvt.onnx')
    for size in ((2, 64, 96), (1, 45, 66), (3, 128, 67)) if dynamic else ((2, 64, 96), ):
        x = torch.randn(size[0], 3, *size[1:])
        with torch.no_grad():
            expected = model(x)
        for i, actual in enumerate(session.run(None, dict(image=x.numpy()))):
            name = f'ONNX, {"dynamic" if dynamic else "fixed"}, {"fused" if fused else "plain"}, {size}, output {i}'
            max_differences.check(name, torch.from_numpy(actual), expected[i], 1e-4)
