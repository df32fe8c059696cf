from itertools import permutations

import pytest
import torch

from cvt_dense.models import ImageClassifier
from cvt_dense.weights import FORMATS, backbone_only, convert, huggingface_config, map_head, measure_arch, recognise

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 1), num_heads=(1, 3, 6))


@pytest.fixture(scope='module')
def ours():
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=5).state_dict()


def test_every_format_is_recognised_by_its_keys(ours):
    for name in FORMATS:
        assert recognise(convert(ours, name)) == name
    assert recognise(backbone_only(ours)) == 'microsoft'
    assert recognise(['conv1.weight', 'layer1.0.bn1.weight', 'backbone.layer1.0.weight', 'stages.0.blocks.0']) is None


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


def test_arch_and_config_are_read_from_the_tensors(ours):
    assert measure_arch(convert(ours, 'microsoft')) == dict(embed_dims=(8, 24, 48), depths=(1, 2, 1))
    config = huggingface_config(ours, (1, 3, 6))
    assert (config['embed_dim'], config['depth'], config['num_heads']) == ([8, 24, 48], [1, 2, 1], [1, 3, 6])
    assert (config['num_labels'], config['cls_token'], config['patch_sizes']) == (5, [False, False, True], [7, 3, 3])
    with pytest.raises(KeyError, match='head.weight'):
        huggingface_config(backbone_only(ours), (1, 3, 6))


@pytest.mark.parametrize('name', FORMATS)
def test_a_heads_rows_follow_the_classes_names(ours, name):
    mapped = convert(map_head(convert(ours, name), ['ant', 'bee', 'cat', 'dog', 'elk'], ['dog', 'ant']), 'cvt_dense')
    assert torch.equal(mapped['head.weight'], ours['head.weight'][[3, 0]])
    assert torch.equal(mapped['head.bias'], ours['head.bias'][[3, 0]])
    assert all(mapped[key] is ours[key] for key in ours if not key.startswith('head.'))
    with pytest.raises(ValueError, match='2 names'):
        map_head(ours, ['ant', 'bee'], ['ant'])
    with pytest.raises(ValueError, match='fox'):
        map_head(ours, ['ant', 'bee', 'cat', 'dog', 'elk'], ['ant', 'fox'])
