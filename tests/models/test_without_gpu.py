"""What is known of a GPU without one: nothing is created on the CPU, nothing makes the host wait, float16 trains."""
import copy
import traceback
from collections import Counter

import pytest
import torch
from mmengine.model import ExponentialMovingAverage
from mmengine.runner import set_random_seed
from models.test_dense import ARCH, build, detection_batch, segmentation_batch
from torch.utils._python_dispatch import TorchDispatchMode

from cvt_dense.models import CvT, ImageClassifier

WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)
BACKBONES = {
    'paper': dict(), 'windows': dict(attn_cfg=WINDOWS), 'linear': dict(attn_cfg=dict(type='cvt_dense.LinearAttention')),
    'positions': dict(attn_cfg=dict(type='cvt_dense.ConvAttention', rel_pos_cfg=dict(type='cvt_dense.RelPosBias'))),
    'rotary': dict(attn_cfg=dict(type='cvt_dense.ConvAttention', rel_pos_cfg=dict(type='cvt_dense.RotaryPositions'))),
    'hybrid': dict(attn_cfg=dict(type='cvt_dense.ConvAttention', proj_cfg=dict(type='cvt_dense.HybridProjection'))),
    'recomputed': dict(with_cp=True), 'embedded': dict(pos_embed=4, layer_scale_init_value=.1, drop_path_rate=.2),
    'classifier': dict(out_type='cls_token', with_dist_token=True)}


class HostWaits(TorchDispatchMode):
    """Counts the operators for which the host waits for a GPU, by the last line outside PyTorch that called them."""

    WAITING = ('_local_scalar_dense', 'nonzero', 'masked_select', '_unique', 'unique_dim', 'is_nonzero')

    def __init__(self):
        super().__init__()
        self.places: Counter = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        indices = args[1] if name in ('index', 'index_put', 'index_put_', '_index_put_impl_') else []
        if name.startswith(self.WAITING) or any(
                index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
            frames = [frame for frame in traceback.extract_stack()[:-1] if '/torch/' not in frame.filename]
            package = frames[-1].filename.rpartition('site-packages/')[2]
            self.places[f'{name} in {package}: {frames[-1].name}'] += 1
        return function(*args, **(kwargs or {}))


def classifier() -> ImageClassifier:
    return ImageClassifier(
        dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token', drop_path_rate=.1), num_classes=5,
        data_preprocessor=dict(
            type='cvt_dense.ClassificationPreprocessor', random_erasing=dict(probability=1., mode='pixel'),
            label_smoothing=.1, mixup=dict(mixup_alpha=.8, cutmix_alpha=1., switch_prob=.5)))


def images(device='cpu') -> dict:
    return dict(inputs=torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8, device=device),
                labels=torch.arange(4, device=device))


def step(model: torch.nn.Module, batch: dict) -> torch.Tensor:
    losses = model(**model.data_preprocessor(batch, True), mode='loss')
    loss, _ = model.parse_losses(losses)
    loss.backward()
    return loss


@pytest.mark.parametrize('options', BACKBONES.values(), ids=BACKBONES)
def test_backbone_on_another_device(options):
    """PyTorch's meta device refuses a tensor that was made on the CPU."""
    model = CvT(ARCH, **options).to('meta').train()
    sum(out.sum() for out in model(torch.rand(2, 3, 49, 90, device='meta'))).backward()
    assert all(out.is_meta for out in model.eval()(torch.rand(1, 3, 64, 64, device='meta')))


def test_classifier_on_another_device():
    model = classifier().to('meta').train()
    model.data_preprocessor.to('meta')
    assert step(model, images('meta')).is_meta
    assert model.eval()(model.data_preprocessor(images('meta'))['inputs']).is_meta


@pytest.mark.parametrize('options', BACKBONES.values(), ids=BACKBONES)
def test_backbone_never_waits(options):
    model, x = CvT(ARCH, **options).train(), torch.rand(2, 3, 49, 90)
    with HostWaits() as waits:
        sum(out.sum() for out in model(x)).backward()
    assert not waits.places


def test_classifier_never_waits():
    model, batch = classifier().train(), images()
    average = ExponentialMovingAverage(model, momentum=.1)
    average.update_parameters(model)
    with HostWaits() as waits:
        step(model, batch)
    assert not waits.places
    with waits:
        average.update_parameters(model)  # MMEngine reads its count of steps, which is on the device
    assert set(waits.places) == {'_local_scalar_dense in mmengine/model/averaged_model.py: update_parameters'}


@pytest.mark.parametrize('name, batch', [('upernet_cvt13_ade20k', segmentation_batch),
                                         ('maskrcnn_cvt13_coco', detection_batch)])
def test_where_dense_recipes_wait(name, batch):
    """Only the heads and preprocessors of mmdet and mmseg make the host wait.

    Operators of cvt_dense.ops are left out: on a GPU torchvision's compiled ones take their place.
    """
    model = build(name).train()
    with HostWaits() as waits:
        step(model, batch((64, 64), (64, 64)))
    ours = [place for place in waits.places if 'cvt_dense' in place and 'cvt_dense/ops' not in place]
    assert not ours, waits.places
    assert any('mmdet' in place for place in waits.places) == (batch is detection_batch)


def test_waits_are_counted():
    x = torch.arange(4.)
    with HostWaits() as waits:
        x[x > 1], float(x.sum()), x.nonzero()
    assert sum(waits.places.values()) == 3 and all('test_waits_are_counted' in place for place in waits.places)


@pytest.mark.parametrize('make', [classifier, lambda: build('upernet_cvt13_ade20k')], ids=['classifier', 'segmentor'])
def test_float16_with_a_loss_scale(make):
    """Autocast's rules and the scaled gradients are those of a GPU; the kernels are the CPU's."""
    torch.manual_seed(0)
    model = make().train()
    batch = images() if isinstance(model, ImageClassifier) else segmentation_batch((64, 64), (64, 64))
    whole = copy.deepcopy(model)
    scaler = torch.amp.GradScaler('cpu', init_scale=2.**12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.)
    gradients = []
    for net, low in ((whole, False), (model, True)):
        set_random_seed(1)  # of Mixup and random erasing too
        data = net.data_preprocessor(copy.deepcopy(batch), True)
        with torch.autocast('cpu', torch.float16, enabled=low):
            loss, _ = net.parse_losses(net(**data, mode='loss'))
        (scaler.scale(loss) if low else loss).backward()
    scaler.unscale_(optimizer)
    for (key, param), expected in zip(model.named_parameters(), whole.parameters()):
        assert param.grad.isfinite().all(), key
        gradients.append((param.grad - expected.grad).norm() / (expected.grad.norm() + 1e-3))
    assert loss.dtype == torch.float32 and torch.stack(gradients).median() < .05
