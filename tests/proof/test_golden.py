"""Equality with the authors' network, by tensors that their code produced (tests/data)."""
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

from cvt_dense.models import CvT
from cvt_dense.models.cvt import to_map
from cvt_dense.pretraining import ImageClassifier

GOLDEN = Path(__file__).parents[1] / 'data' / 'cvt_tiny_golden.safetensors'
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 2), num_heads=(1, 3, 6))
assert_close = partial(torch.testing.assert_close, rtol=0, atol=1e-5)


@pytest.fixture(scope='module')
def golden():
    with safe_open(GOLDEN, 'pt') as f:
        return {key: f.get_tensor(key) for key in f.keys()}


@pytest.fixture(scope='module')
def state_dict(golden):
    return {key[len('state_dict.'):]: value for key, value in golden.items() if key.startswith('state_dict.')}


@pytest.fixture
def classifier(state_dict):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=10)
    model.load_strictly(state_dict, GOLDEN.name)
    return model


@pytest.mark.parametrize('image', ['square', 'odd'])
def test_stage_maps_cls_token_and_logits_are_the_authors(golden, classifier, image):
    classifier.eval()
    x = golden[f'{image}.input']
    with torch.no_grad():
        assert_close(classifier(x), golden[f'{image}.eval.logits'])
        for i, stage in enumerate(classifier.backbone.stages):
            tokens, cls_token, hw_shape = stage(x)
            x = to_map(tokens, hw_shape)
            assert_close(x, golden[f'{image}.eval.stage{i}'])
        assert_close(cls_token, golden[f'{image}.eval.cls'])


def test_the_dense_network_normalises_the_same_maps(golden, state_dict):
    model = CvT(ARCH).eval()
    model.load_strictly(state_dict, GOLDEN.name)
    with torch.no_grad():
        for i, out in enumerate(model(golden['odd.input'])):
            expected = golden[f'odd.eval.stage{i}'].permute(0, 2, 3, 1)
            expected = F.layer_norm(expected, expected.shape[-1:]).permute(0, 3, 1, 2)
            assert_close(out, expected)


def test_training_loss_and_gradients_are_the_authors(golden, classifier):
    classifier.train()
    x = golden['square.input'].clone().requires_grad_()
    logits = classifier(x)
    loss = F.cross_entropy(logits, torch.tensor([3, 7]))
    loss.backward()
    assert_close(logits, golden['square.train.logits'])
    assert_close(loss[None], golden['square.train.loss'])
    assert_close(x.grad, golden['square.train.input_grad'])
    parameters = dict(classifier.backbone.named_parameters())
    gradients = {key.split('grad.', 1)[1]: value for key, value in golden.items() if '.train.grad.' in key}
    assert len(gradients) == 2
    for name, expected in gradients.items():
        assert_close(parameters[name].grad, expected)
