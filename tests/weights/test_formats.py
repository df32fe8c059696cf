from itertools import permutations

import pytest
import torch

from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import FORMATS, convert

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 1), num_heads=(1, 3, 6))


@pytest.fixture(scope='module')
def ours():
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=5).state_dict()


@pytest.mark.parametrize('way', [(*others, 'microsoft') for others in permutations(FORMATS[1:], 2)])
def test_round_trips_give_the_very_same_tensors_in_the_same_order(ours, way):
    start = convert(ours, 'microsoft')
    assert 'stage2.blocks.0.attn.conv_proj_q.bn.num_batches_tracked' in start
    state_dict = start
    for name in way:
        state_dict = convert(state_dict, name)
        assert len(state_dict) == len(start)
    assert list(state_dict) == list(start)
    assert all(state_dict[key] is start[key] for key in start)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match='fc.weight'):
        convert({'fc.weight': torch.zeros(1)}, 'microsoft')
