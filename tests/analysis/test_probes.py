"""Each probe against something that is known without it."""
import numpy as np
import pytest
import supervision as sv
import torch
from PIL import Image
from probes import PROBES, NotApplicable, Subject, get_probe, stage_maps
from probes.attack import RADII, fgsm, pgd
from probes.calibration import drawn, reliability
from probes.features import alignment, linear_probe, neighbours
from probes.occlusion import GRID, hide, patch_attention
from probes.receptive import fields, square
from probes.shape import edges, high_pass, low_pass, shape_bias, shuffle, silhouette
from probes.shift import KINDS, _labels_kept, _overlap, move
from torch import nn

from cvt_dense.models import CvT, ImageClassifier, TimmBackbone

ARCH = dict(embed_dims=[8, 16, 24], depths=[1, 1, 2], num_heads=[1, 2, 3], patch_sizes=3, patch_strides=2,
            patch_paddings=1)
CLASSES = ('red', 'green', 'blue')


class Pool(nn.Module):
    """The mean colour; it sees nothing of what is where."""
    out_channels = (3, )

    def forward(self, x):
        return (x.mean(dim=(2, 3)), )


def subject(backbone=None, name='pool', **kwargs) -> Subject:
    """A classifier that the mean colour's largest channel decides, or one with a backbone of random weights."""
    network = ImageClassifier(backbone or Pool(), num_classes=3)
    if backbone is None:
        mean, std = (part.flatten() for part in (network.data_preprocessor.mean, network.data_preprocessor.std))
        network.head.weight.data, network.head.bias.data = 4 * torch.diag(std) / 58, 4 * (mean - 124) / 58
    images = torch.randint(80, 170, (30, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(30) % 3
    images[torch.arange(30), labels] += 6  # less than attacks of 8 take away
    return Subject(name, network.eval().requires_grad_(False), classes=CLASSES, images=images, labels=labels,
                   train=(images, labels), **kwargs)


@pytest.fixture(scope='module')
def cvt() -> Subject:
    torch.manual_seed(0)
    return subject(CvT(ARCH, out_type='cls_token', drop_path_rate=0.2), 'cvt')


def test_a_shift_by_nothing_changes_nothing():
    images = torch.rand(2, 3, 7, 9)
    for kind in KINDS:
        assert all(torch.equal(move(images, 0, kind, axis), images) for axis in (2, 3))
    assert torch.equal(move(images, 2, 'cropped', 3)[..., 2:], images[..., :-2])
    assert torch.equal(move(images, 2, 'cyclic', 3)[..., :2], images[..., -2:])


def test_global_pooling_is_invariant_under_cyclic_shifts_and_a_cvt_is_not(cvt):
    found = get_probe('shift')(subject(), []).values
    assert all(row['consistency'] == 100 and row['change of features'] < 1e-3 for row in found['cyclic'].values())
    assert found['cropped']['16']['change of features'] > 0.1
    assert get_probe('shift')(cvt, []).values['cyclic']['1']['change of features'] > 0.1


def test_what_moves_along_is_followed():
    labels = np.arange(60).reshape(6, 10)
    assert _labels_kept(labels, np.roll(labels, 3, 1), 3) == 1 and _labels_kept(labels, labels, 3) == 0
    boxes = sv.Detections(np.array([[2., 2, 12, 12], [20, 20, 30, 30]]), class_id=np.array([0, 1]),
                          confidence=np.array([.9, .8]))
    moved = sv.Detections(boxes.xyxy + [4, 0, 4, 0], class_id=boxes.class_id, confidence=boxes.confidence)
    assert _overlap(boxes, moved, 4) == pytest.approx(1) and _overlap(boxes, boxes, 4) < 0.5
    moved.class_id = 1 - moved.class_id
    assert _overlap(boxes, moved, 4) == 0
    silent = Subject('silent', nn.Identity(), 'detection', arrays=[np.zeros((32, 32, 3), np.uint8)],
                     predict=lambda array: sv.Detections(boxes.xyxy[:0], class_id=boxes.class_id[:0],
                                                         confidence=boxes.confidence[:0]))
    with pytest.raises(NotApplicable):
        get_probe('shift')(silent, [])


def test_patches_are_hidden_in_their_order(cvt):
    images, colour = torch.randint(1, 256, (2, 3, 32, 32), dtype=torch.uint8), torch.zeros(3, 1, 1)
    order = torch.stack((torch.arange(GRID**2), torch.arange(GRID**2).flip(0)))
    assert torch.equal(hide(images, order, 0, colour), images) and not hide(images, order, 100, colour).any()
    half = hide(images, order, 50, colour)
    assert not half[0, :, :16].any() and torch.equal(half[0, :, 16:], images[0, :, 16:])
    assert not half[1, :, 16:].any() and torch.equal(half[1, :, :16], images[1, :, :16])
    attention = patch_attention(cvt, cvt.images)
    assert attention.shape == (30, GRID**2) and (attention >= 0).all() and attention.std() > 0
    assert patch_attention(subject(), cvt.images) is None
    alone, beside = (get_probe('occlusion')(subject(), others).values for others in ([], [cvt]))
    assert set(alone) == {'random'} and set(beside) == {'random', 'most', 'least'} and alone['random']['0'] == 100


def test_integrated_gradients_of_a_linear_network_are_complete():
    found = get_probe('attribution')(subject(), [])
    assert found.values['gap of completeness'] < 1e-3
    assert found.values['correlation'] > 0.9, 'of a linear network both maps are the same'


class Convolutions(nn.Module):
    def __init__(self, *kernels):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, kernel, padding=kernel // 2) for kernel in kernels)

    def forward(self, x):
        outs = []
        for layer in self.layers:
            x = layer(x)
            outs.append(x)
        return outs


def test_receptive_fields_of_convolutions(cvt):
    found = fields(Convolutions(1, 3, 5), torch.rand(2, 3, 17, 18))
    assert [square(field, 0.999) for field in found] == [1, 3, 7]
    assert square(torch.ones(9, 9), 0.5) == 7 and square(torch.ones(9, 9), 1.) == 9
    values = get_probe('receptive')(cvt, []).values
    assert [stage['50%'] <= stage['99%'] <= 33 for stage in values['trained']] == [True] * 3


def test_shuffling(cvt):
    images = torch.arange(2 * 3 * 11 * 13, dtype=torch.float32).view(2, 3, 11, 13)
    assert torch.equal(shuffle(images, 1), images)
    mixed = shuffle(images, 4)
    assert torch.equal(mixed[..., 8:, :], images[..., 8:, :]) and torch.equal(mixed[..., 12:], images[..., 12:])
    assert torch.equal(mixed.flatten(1).sort(1).values, images.flatten(1).sort(1).values) and (mixed != images).any()
    assert torch.equal(mixed[0, 1] - mixed[0, 0], images[0, 1] - images[0, 0]), 'channels stay together'
    assert get_probe('shape')(subject(), []).values['relative']['shuffled 8x8'] == 1, 'pooling sees no order'


def test_images_of_shape_alone():
    image = np.full((32, 32, 3), 40, np.uint8)
    assert (edges(image) == 255).all() and (high_pass(image) == 127).all() and (low_pass(image) == image).all()
    image[8:24, 8:24] = 200
    assert set(np.unique(silhouette(image))) == {0, 255} and (silhouette(image)[8:24, 8:24] == 255).all()
    assert 0 < (edges(image) == 0).mean() < 0.2


def test_cue_conflict_of_a_network_that_knows_colour_alone(tmp_path):
    colours = dict(red=(255, 0, 0), blue=(0, 0, 255))
    for shape, texture in (('red', 'blue'), ('blue', 'red'), ('red', 'red')):
        folder = tmp_path / 'cue-conflict' / shape
        folder.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (48, 48), colours[texture]).save(folder / f'{shape}1-{texture}12.png')
    (tmp_path / 'cue-conflict/oven').mkdir()
    found = get_probe('shape')(subject(data_root=str(tmp_path)), [])
    assert found.values['shape bias'] == 0 and found.values['images of conflicting cues'] == 2
    assert shape_bias(Subject('other', nn.Identity(), classes=('dog', )), tmp_path / 'cue-conflict') == {}


def test_attacks():
    one = subject()
    assert torch.equal(pgd(one.forward, one.images, one.labels, 8, steps=0), one.images.float()), 'clean accuracy'
    for moved in (pgd(one.forward, one.images, one.labels, 4), fgsm(one.forward, one.images, one.labels, 4)):
        assert (moved - one.images).abs().max() <= 4 + 1e-3 and 0 <= moved.min() and moved.max() <= 255
        assert one.accuracy(moved) < one.accuracy(one.images) == 100
    found = get_probe('attack')(one, [subject()]).values
    line = list(found['PGD'].values())
    assert line[0] == 100 and line == sorted(line, reverse=True) and len(line) == len(RADII) + 1 and line[-1] < 10
    assert found['checks']['more steps are not worse'] and found['checks']['transfer is weaker']


def test_neighbours_and_linear_probe():
    rng = np.random.default_rng(0)
    train, labels = rng.normal(size=(60, 5)), rng.integers(0, 4, 60)
    assert (neighbours(train, labels, train, k=1) == labels).all()
    assert (neighbours(train, labels, train, k=20) == labels).all(), 'an image without distance decides'
    apart = train + 20 * np.eye(5)[labels]
    assert (linear_probe(apart, labels, apart) == labels).all()


def test_alignment(cvt):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6))
    turned = 3 * x @ np.linalg.qr(rng.normal(size=(6, 6)))[0] + 1
    assert alignment(x, turned) == pytest.approx(1) and alignment(x, rng.normal(size=(200, 6))) < 0.2
    found = get_probe('features')(cvt, [cvt]).values
    assert np.allclose(np.diag(found['alignment']['cvt']), 1) and len(found['neighbours']) == 3


def test_calibration(cvt):
    labels = torch.tensor([0, 0, 1, 1])
    sure = torch.eye(2)[[0, 0, 1, 1]]
    assert reliability(sure, labels)[0] == 0 and reliability(sure.flip(1), labels)[0] == 100
    assert reliability(sure[[0, 0, 0, 0]], labels)[0] == 50
    assert drawn(subject()) is None
    single = cvt.run(cvt.images)[0].softmax(1)
    assert (drawn(cvt) - single).abs().max() > 1e-5
    assert torch.equal(cvt.run(cvt.images)[0].softmax(1), single), 'drop path is inactive afterwards'
    found = get_probe('calibration')(cvt, [cvt]).values
    assert found['ensemble'] == found['one pass'] != found['Monte-Carlo']


@pytest.mark.parametrize('backbone, strides', [
    (dict(model_name='resnet10t', channels=(8, 8, 8, 8), out_type='pooled'), [2, 4, 8, 16, 32]),
    (dict(model_name='vit_tiny_patch16_224', img_size=64, patch_size=8, embed_dim=24, depth=2, num_heads=3,
          out_type='pooled'), [8, 8]),
    (dict(model_name='resnet10t', channels=(8, 8, 8, 8), out_indices=(1, 3)), [4, 16])])
def test_maps_of_the_stages(backbone, strides):
    maps = stage_maps(TimmBackbone(**backbone).eval(), torch.rand(1, 3, 64, 64))
    assert [64 // feature_map.shape[3] for feature_map in maps] == strides
    with pytest.raises(NotApplicable):
        stage_maps(Pool(), torch.rand(1, 3, 8, 8))


@pytest.mark.parametrize('name', [name for name in PROBES if name not in ('shift', 'receptive')])
def test_probes_of_labels_say_so_to_a_segmentor(name):
    with pytest.raises(NotApplicable, match='segmentation'):
        get_probe(name)(Subject('segmentor', nn.Identity(), 'segmentation'), [])
