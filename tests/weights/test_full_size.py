"""A CvT-13 of full size, in a file as it is published, on its way to dense fine-tuning."""
import re

import pytest
import safetensors.torch
import torch
from mmengine.runner import load_checkpoint
from torch import nn

from cvt_dense.models import CvT, ImageClassifier
from cvt_dense.weights import convert


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp('published')
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch='cvt-13', out_type='cls_token'), num_classes=1000)
    assert sum(p.numel() for p in model.parameters()) == 19_997_480
    state_dict = convert(model.state_dict(), 'microsoft')
    torch.save(state_dict, folder / 'CvT-13-224x224-IN-1k.pth')
    (folder / 'cvt-13').mkdir()
    safetensors.torch.save_file(convert(state_dict, 'huggingface'), folder / 'cvt-13' / 'model.safetensors')
    return folder


@pytest.mark.parametrize('name', ['CvT-13-224x224-IN-1k.pth', 'cvt-13'])
def test_counts_on_the_way_to_dense_fine_tuning(files, name, report):
    # 13 blocks of 8 * 2 + 3 * 6 tensors, 3 embeddings of 4 and the CLS token; norm and head stay behind.
    backbone_tensors = 13 * (8 * 2 + 3 * 6) + 3 * 4 + 1
    backbone = CvT('cvt-13', init_cfg=dict(type='Pretrained', checkpoint=str(files / name)))
    backbone.init_weights()
    load_from = nn.ModuleDict(dict(backbone=CvT('cvt-13'), neck=nn.Conv2d(64, 256, 1)))
    load_checkpoint(load_from, str(files / name))  # sees no head: it is outside the backbone
    assert report() == [
        f'CvT: {backbone_tensors} tensors loaded, 6 new (norm0, norm1, norm2), 4 left over (norm, head)',
        f'CvT: {backbone_tensors} tensors loaded, 6 new (norm0, norm1, norm2), 2 left over (norm)']
    for key, value in load_from['backbone'].state_dict().items():
        assert re.match(r'norm\d', key) or torch.equal(value, backbone.state_dict()[key])
