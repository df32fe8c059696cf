"""The operators of cvt_dense.ops against compiled mmcv's outputs, other implementations, autograd and devices."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from operator_cases import PATH, boxes, named_cases
from torchvision.ops import box_iou, sigmoid_focal_loss

from cvt_dense.ops import operator

REFERENCE = np.load(PATH)
CASES = named_cases()
ALIGN = dict(aligned_height=3, aligned_width=4, spatial_scale=1 / 8, sampling_ratio=2, pool_mode=1, aligned=True)


@pytest.mark.parametrize('name', ['roi_align', 'nms'])
def test_outputs_and_gradients_of_compiled_mmcv(name):
    for case, compute in CASES.items():
        if case.startswith(f'{name}-'):
            for number, output in enumerate(compute(operator)):
                expected = torch.from_numpy(REFERENCE[f'{case}/{number}'])
                assert output.dtype == expected.dtype
                torch.testing.assert_close(output, expected, rtol=1e-5, atol=2e-5, msg=lambda m: f'{case}: {m}')


def test_suppression_of_boxes_that_include_their_last_pixel():
    corners, scores = torch.rand(400, 2) * 40, torch.rand(400)
    candidates = torch.cat([corners, corners + torch.rand(400, 2) * 20], dim=1)
    overlaps, kept = box_iou(*[candidates + torch.tensor([0, 0, 1, 1])] * 2), []
    for number in scores.argsort(descending=True):
        kept += [number] * (not (overlaps[number, kept] > .3).any())
    assert operator('nms')(candidates, scores, iou_threshold=.3, offset=1).tolist() == kept and len(kept) < 200


def roi_align(x, rois, **settings):
    out, y_max, x_max = x.new_zeros(3, len(rois), x.shape[1], 3, 4)
    operator('roi_align_forward')(x, rois, out, y_max, x_max, **{**ALIGN, **settings})
    return out


def test_gradients_of_deformable_attention():
    value, locations, weights = inputs = [x.requires_grad_() for x in (
        torch.randn(2, 26, 2, 3), torch.rand(2, 4, 2, 2, 3, 2), torch.rand(2, 4, 2, 2, 3))]
    arguments = value, torch.tensor([[4, 5], [2, 3]]), torch.tensor([0, 20]), locations, weights
    out = operator('ms_deform_attn_forward')(*arguments, im2col_step=64)
    grad, grads = torch.randn_like(out), [torch.zeros_like(x) for x in inputs]
    operator('ms_deform_attn_backward')(*arguments, grad, *grads, im2col_step=64)
    torch.testing.assert_close(grads, list(torch.autograd.grad(out, inputs, grad)))


@pytest.mark.parametrize('gamma', [0., 2., 3.5])
@pytest.mark.parametrize('weighted', [False, True])
def test_focal_loss(gamma, weighted):
    """mmcv has no focal loss for the CPU, but torchvision has one."""
    logits = torch.randn(12, 5, requires_grad=True)
    weight = torch.rand(5) if weighted else torch.empty(0)
    label = torch.randint(0, 6, (12, ))
    loss = sigmoid_focal_loss(logits, F.one_hot(label, 6)[:, :5].float(), alpha=.25, gamma=gamma)
    loss = loss * (weight[label.clamp(max=4)][:, None] if weighted else 1)
    out, grad = torch.zeros(2, 12, 5)
    operator('sigmoid_focal_loss_forward')(logits.detach(), label, weight, out, gamma=gamma, alpha=.25)
    operator('sigmoid_focal_loss_backward')(logits.detach(), label, weight, grad, gamma=gamma, alpha=.25)
    torch.testing.assert_close(out, loss)
    torch.testing.assert_close(grad, torch.autograd.grad(loss.sum(), logits)[0])


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_roi_align_in_half_precision(dtype):
    x = torch.randn(2, 3, 10, 13).to(dtype)
    rois = torch.cat((torch.ones(6, 1), boxes('inside', 6, np.random.RandomState(0))), 1).to(dtype)
    got, expected = roi_align(x, rois), roi_align(x.float(), rois.float())
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), expected, rtol=1e-2, atol=1e-2)


def test_roi_align_of_boxes_beyond_all_sizes():
    """A box of a million pixels reads no more cells than the map has, and one with NaN and infinity raises no error."""
    rois = torch.tensor([[0, -5e5, -5e5, 5e5, 5e5], [0, 0, 0, torch.nan, torch.inf]])
    assert roi_align(torch.ones(1, 2, 10, 13), rois, sampling_ratio=2).isfinite().all()


def test_shapes_on_the_meta_device():
    with torch.device('meta'):
        x, rois = torch.zeros(1, 2, 10, 13), torch.zeros(6, 5)
        assert roi_align(x, rois).shape == (6, 2, 3, 4)
        assert len(operator('nms')(rois[:, 1:], rois[:, 0], iou_threshold=.5, offset=0)) == 6


def test_other_operators_name_the_remedy_when_they_are_called():
    with pytest.raises(NotImplementedError, match='carafe_forward.*compiled'):
        operator('carafe_forward')()
    with pytest.raises(NotImplementedError):
        roi_align(torch.zeros(1, 2, 10, 13), torch.zeros(6, 5), pool_mode=0)
    with pytest.raises(AttributeError):
        operator('__path__')
