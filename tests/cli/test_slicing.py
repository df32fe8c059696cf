"""Slices give what MMSegmentation's sliding windows and unsliced prediction give; boxes across seams become one."""
import copy

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.config import ConfigDict
from mmengine.dataset import Compose
from mmengine.structures import InstanceData
from PIL import Image

from cvt_dense import inference as api
from cvt_dense.inference import slices as slicing


@pytest.fixture(scope='module')
def image(shapes):
    """Four drawn scenes side by side, whose objects and edges slices cut."""
    files = sorted((shapes / 'detection/train').glob('*.png'))[:4]
    scenes = [np.asarray(Image.open(file))[..., ::-1] for file in files]
    return np.ascontiguousarray(np.vstack([np.hstack(scenes[:2]), np.hstack(scenes[2:])])[:201, :233])


@pytest.mark.slow
@pytest.mark.parametrize('overlap', (0., 0.2, 0.7))
def test_label_map_as_mmsegmentation(models, image, monkeypatch, overlap):
    model = copy.copy(models['segmentation'])
    model.pipeline = Compose([dict(type='mmseg.PackSegInputs')])
    predicted = api.predict(model, image, slice=64, overlap=overlap)
    stride = 64 - round(64 * overlap)
    monkeypatch.setattr(model.network, 'test_cfg', ConfigDict(
        mode='slide', crop_size=(64, 64), stride=(stride, stride)))
    expected = api.predict(model, image)
    assert predicted.dtype == np.uint8 and len(np.unique(predicted)) > 1
    np.testing.assert_array_equal(predicted, expected)


def bright_rectangles(window):
    """A detector of what is white: one box, mask and score, from the part that lies in the window."""
    white = window[..., 0] > 0
    instances = InstanceData(bboxes=torch.zeros(0, 4), scores=torch.zeros(0), labels=torch.zeros(0, dtype=int),
                             masks=torch.zeros(0, *white.shape, dtype=bool))
    if white.any():
        rows, columns = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        box = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        instances = InstanceData(bboxes=torch.tensor([box]).float(), scores=torch.tensor([0.5 + white.mean() / 2]),
                                 labels=torch.tensor([1]), masks=torch.from_numpy(white)[None])
    return DetDataSample(pred_instances=instances)


def test_an_object_across_seams_becomes_one():
    scene = np.zeros((300, 500, 3), np.uint8)
    scene[90:140, 150:230] = 255  # between the slices of 100 pixels, of which 40 overlap
    predicted = slicing.slice_detections(bright_rectangles, scene, 100, 0.4, score_thr=0.3)
    assert predicted.xyxy.tolist() == [[150, 90, 230, 140]] and predicted.class_id.tolist() == [1]
    np.testing.assert_array_equal(np.asarray(predicted.mask)[0], scene[..., 0] > 0)
    assert len(slicing.slice_detections(bright_rectangles, scene, 100, 0., score_thr=0.3)) > 1  # nothing in common
    assert not len(slicing.slice_detections(bright_rectangles, scene * 0, 100, 0.4))
    scene = np.zeros((300, 500, 3), np.uint8)
    scene[65:95, 65:95] = 255  # complete in four slices
    predicted = slicing.slice_detections(bright_rectangles, scene, 100, 0.4)
    assert predicted.xyxy.tolist() == [[65, 65, 95, 95]] and np.asarray(predicted.mask).sum() == 900
