"""Distillation: formulas, what the teacher sees and where it is not, and the token."""
import copy
import math

import pytest
import timm
import torch
from load_tool import run_tool
from mmengine.config import Config
from mmengine.model import ExponentialMovingAverage
from mmengine.registry import MODELS
from tiny_training import differences, load, write_config

from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.start import start_training
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.pretraining.distillation import hard_loss, soft_loss

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 2), num_heads=(1, 3, 6))
CLASSES = 5


def images(shape: tuple, generator: torch.Generator | None = None) -> torch.Tensor:
    """Noise, each image around another colour."""
    return torch.randn(shape, generator=generator) + 2 * torch.randn(*shape[:2], 1, 1, generator=generator)


@pytest.fixture(scope='module')
def teacher(tmp_path_factory) -> dict:
    """A convolutional network of timm that separates classes by its random weights."""
    torch.manual_seed(3)
    network = timm.create_model('test_resnet', num_classes=CLASSES)
    with torch.no_grad():
        network.fc.bias -= network.eval()(0.5 * images((64, 3, 40, 40))).mean(0)
        for parameter in network.fc.parameters():
            parameter *= 20
    file = tmp_path_factory.mktemp('teacher') / 'teacher.pth'
    torch.save(network.state_dict(), file)
    return dict(type='cvt_dense.TimmTeacher', model_name='test_resnet', checkpoint=str(file), input_size=40)


def build(teacher=None, arch=ARCH, **settings) -> ImageClassifier:
    torch.manual_seed(0)
    settings = settings and dict(teacher=teacher, **settings)
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token', drop_path_rate=0.2), CLASSES,
                           dict(type='cvt_dense.ClassificationPreprocessor', mean=[100., 110., 120.],
                                std=[50., 60., 70.]), distillation=settings or None)


def batch(soft=False) -> dict:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(CLASSES, (6, ), generator=generator)
    if soft:
        labels = torch.rand(6, CLASSES, generator=generator).softmax(1)
    return dict(inputs=images((6, 3, 32, 32), generator), labels=labels)


# -- formulas ------------------------------------------------------------------------------------------------


def test_losses_are_the_formulas():
    student, teacher = torch.randn(2, 7, 4, dtype=torch.float64)
    for temperature in (1., 3.):
        p, q = ((x / temperature).exp() / (x / temperature).exp().sum(1, keepdim=True) for x in (teacher, student))
        plain = sum(p[i, k] * (math.log(p[i, k]) - math.log(q[i, k])) for i in range(7) for k in range(4))
        torch.testing.assert_close(
            soft_loss(student, teacher, temperature), temperature**2 * plain / 7, rtol=1e-12, atol=0)
    q = student.exp() / student.exp().sum(1, keepdim=True)
    torch.testing.assert_close(
        hard_loss(student, teacher), -q[range(7), teacher.argmax(1)].log().mean(), rtol=1e-12, atol=0)


@pytest.mark.parametrize('mode', ['hard', 'soft'])
@pytest.mark.parametrize('soft_labels', [False, True])
def test_a_step_of_the_classifier(teacher, mode, soft_labels):
    """Both terms from the model's own logits and the teacher's, which sees its own normalisation and size."""
    model, data = build(teacher, mode=mode, alpha=0.3, temperature=2.).eval(), batch(soft_labels)
    losses = model(**data, mode='loss')
    network = timm.create_model('test_resnet', num_classes=CLASSES).eval()
    network.load_state_dict(torch.load(teacher['checkpoint']))
    mean, std = (255 * torch.tensor(network.pretrained_cfg[key]).view(-1, 1, 1) for key in ('mean', 'std'))
    pixels = data['inputs'] * model.data_preprocessor.std + model.data_preprocessor.mean
    with torch.no_grad():
        resized = torch.nn.functional.interpolate((pixels - mean) / std, (40, 40), mode='bicubic', antialias=True)
        taught = network(resized)
    logits = model(data['inputs'])
    learned = hard_loss(logits, taught) if mode == 'hard' else soft_loss(logits, taught, 2.)
    torch.testing.assert_close(losses['loss_distill'], 0.3 * learned)
    torch.testing.assert_close(losses['loss_cls'], 0.7 * torch.nn.functional.cross_entropy(logits, data['labels']))
    labels = data['labels'].argmax(1) if soft_labels else data['labels']
    assert losses['teacher_top1'] == 100 * (taught.argmax(1) == labels).float().mean()
    assert len(taught.argmax(1).unique()) > 1, 'the teacher predicts one class only'


def test_teacher_is_in_nothing_that_is_trained(teacher):
    model, plain = build(teacher, alpha=0.5), build()
    model(**batch(), mode='loss')
    for other in (copy.deepcopy(model), ExponentialMovingAverage(model).module):
        assert len(list(other.modules())) == len(list(plain.modules())) and other.distillation is model.distillation
    assert model.state_dict().keys() == plain.state_dict().keys()
    loaded = model.distillation.teacher(CLASSES)
    model.train()
    assert not any(module.training for module in loaded.modules())
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


# -- the token -----------------------------------------------------------------------------------------------


def test_the_distillation_token_learns_and_may_be_left_out(teacher, tmp_path):
    model = build(teacher, mode='hard', token=True)
    new = {'backbone.stage2.dist_token', 'head_dist.weight', 'head_dist.bias'}
    assert set(model.state_dict()) - set(build().state_dict()) == new
    loss, _ = model.parse_losses(model(**batch(), mode='loss'))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.backbone.stage2.dist_token.grad.any() and model.head_dist.weight.grad.any()
    model.eval()
    cls, dist = model.backbone(batch()['inputs'])
    torch.testing.assert_close(model(batch()['inputs']), (model.head(cls) + model.head_dist(dist)) / 2)
    assert (cls - dist).abs().max() > 0.1
    # Published weights: token and head are new; into a plain backbone: unused, and maps do not depend on either.
    torch.save(build().state_dict(), tmp_path / 'plain.pth')
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'distilled.pth')
    loaded = model.load_strictly(torch.load(tmp_path / 'plain.pth'), 'plain')
    assert len(loaded.new) == 3 and not loaded.unused
    left = CvT(ARCH).load_strictly(torch.load(tmp_path / 'distilled.pth')['state_dict'], 'distilled').unused
    assert {'stage2.dist_token', 'head_dist.weight', 'head_dist.bias'} <= set(left) and len(left) == 7


# -- whole runs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Data and a run of 2 epochs that learns from a classifier of this project, in its folder."""
    folder = tmp_path_factory.mktemp('runs')
    config = write_config(folder)
    teacher = ImageClassifier(dict(
        type='cvt_dense.CvT', arch=dict(ARCH, depths=(1, 1, 1)), out_type='avg_featmap', with_cls_token=False), 2)
    torch.save(dict(state_dict=teacher.state_dict()), folder / 'teacher.pth')
    teacher = dict(config=str(config), checkpoint=str(folder / 'teacher.pth'))
    (folder / 'distilled.py').write_text(
        f'_base_ = {str(config)!r}\n'
        f"model = dict(distillation=dict(teacher={teacher}, mode='soft', alpha=0.5))\n"
        'train_cfg = dict(max_epochs=2)\ndefault_hooks = dict(checkpoint=dict(interval=1, max_keep_ckpts=2))\n')
    return folder


def run_of(folder, name, **changes):
    return start_training(TrainRun(folder / 'distilled.py', work_dir=folder / name, **changes))


def test_a_published_teacher(folder):
    run_tool('publish', folder / 'tiny.py', folder / 'teacher.pth', folder / 'mine', '--license', 'mit', '--no-test',
             '--cfg-options', 'model.backbone.drop_path_rate=0.')
    for name, rc in (('mine', 0), ('elsewhere', 2)):
        options = [f'model.distillation.teacher.{key}={folder / name}' for key in ('config', 'checkpoint')]
        assert name in run_tool('train', folder / 'distilled.py', '--work-dir', folder / f'by_{name}', '--cfg-options',
                                'train_cfg.max_epochs=1', *options, rc=rc)


def test_resumed_to_the_same_bits_and_nothing_of_the_teacher_in_files(folder):
    run_of(folder, 'whole').train()
    run_of(folder, 'resumed', resume=str(folder / 'whole/epoch_1.pth')).train()
    assert differences(folder / 'whole/epoch_2.pth', folder / 'resumed/epoch_2.pth') == []
    saved = load(folder / 'whole/epoch_2.pth')
    names = list(MODELS.build(dict(Config.fromfile(folder / 'tiny.py').model)).state_dict())
    assert list(saved['state_dict']) == names and len(saved['ema_state_dict']) == len(names) + 1  # and a counter
