"""The weights in this package: networks that they load into, and errors where they cannot be used."""
import pytest
import torch
from mmengine.runner import load_checkpoint

from cvt_dense.errors import CheckpointError
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import load_weights_file, packaged

ADDRESS = 'cvt_dense://cvt-nano'
INIT = dict(type='Pretrained', checkpoint=ADDRESS)


def test_backbone_starts_from_it():
    model = CvT(arch='cvt-nano', init_cfg=INIT)
    model.init_weights()
    published = load_weights_file(ADDRESS)['state_dict']
    assert load_weights_file(str(packaged.FOLDER / 'cvt_nano.safetensors'))['state_dict'].keys() == published.keys()
    for name, value in model.state_dict().items():
        if name.startswith('stage'):  # the levels' norms are new
            assert torch.equal(value, published[f'backbone.{name}']), name


def test_classifier_knows_its_classes(our_tool):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch='cvt-nano', out_type='avg_featmap'), num_classes=200)
    checkpoint = load_checkpoint(model, ADDRESS, strict=True)
    classes = checkpoint['meta']['dataset_meta']['classes']
    assert len(classes) == 200 and list(classes) == sorted(classes) and 'n01443537_goldfish' in classes


def test_other_names():
    with pytest.raises(CheckpointError, match='cvt-nano'):
        load_weights_file('cvt_dense://cvt-13')
