"""RoIAlign for inference computes what mmcv's operator computes."""
import pytest
import torch
from mmcv.ops import RoIAlign

from cvt_dense.deploy.roi_align import InferenceRoIAlign


def boxes_across_and_beyond_the_map() -> torch.Tensor:
    """300 boxes on two images of 80x112 pixels: small, large, empty, partly and wholly outside."""
    centre, size = torch.rand(300, 2) * 160 - 30, torch.rand(300, 2) ** 3 * 150
    size[:5] = 0
    return torch.cat([torch.randint(2, (300, 1)), centre - size / 2, centre + size / 2], 1)


@pytest.mark.parametrize('sampling_ratio', [0, 1, 2, 10])
@pytest.mark.parametrize('aligned', [True, False])
def test_same_output(sampling_ratio, aligned):
    torch.manual_seed(0)
    layer = RoIAlign((5, 7), 1 / 8, sampling_ratio, aligned=aligned)
    maps, rois = torch.randn(2, 24, 10, 14), boxes_across_and_beyond_the_map()
    expected = layer(maps, rois)
    for given in (maps, maps.to(memory_format=torch.channels_last)):
        with torch.no_grad():
            torch.testing.assert_close(InferenceRoIAlign(layer)(given, rois), expected, rtol=0, atol=2e-5)
            assert InferenceRoIAlign(layer)(given, rois[:0]).shape == (0, 24, 5, 7)


def test_gradients_are_those_of_mmcv():
    layer, maps, rois = RoIAlign(3), torch.randn(2, 4, 40, 56, requires_grad=True), boxes_across_and_beyond_the_map()
    grads = [torch.autograd.grad(module(maps, rois).square().sum(), maps)[0]
             for module in (layer, InferenceRoIAlign(layer))]
    assert torch.equal(*grads) and grads[0].any()
