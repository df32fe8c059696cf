"""Learning rate and weight decay of every parameter, exactly."""
from templates_edited import by_name, layer_decay
from torch import nn

import cvt_dense  # noqa: F401
from cvt_dense.models import CvT

LR, WEIGHT_DECAY, RATE = 1e-3, 0.05, 0.5
ARCH = dict(embed_dims=(8, 16, 32), depths=(1, 2, 2), num_heads=(1, 2, 4))
NUM_LAYERS = 1 + 5 + 1  # stem, blocks, the rest

# Parameter of the backbone to (layer, does it decay): a stage's embedding goes with its first block.
EXPECTED = {
    'stage0.patch_embed.proj.weight': (0, True),
    'stage0.patch_embed.norm.weight': (0, False),
    'stage0.blocks.0.attn.conv_proj_q.conv.weight': (1, True),  # depth-wise convolutions decay
    'stage0.blocks.0.attn.conv_proj_q.bn.weight': (1, False),
    'stage1.patch_embed.proj.weight': (2, True),
    'stage1.blocks.1.mlp.fc1.bias': (3, False),
    'stage2.cls_token': (4, False),
    'stage2.patch_embed.proj.weight': (4, True),
    'stage2.blocks.1.attn.proj.weight': (5, True),
    'norm2.weight': (6, False)}


class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.backbone = CvT(arch=ARCH)
        self.head = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8))


def test_every_parameter_of_an_mmengine_model_has_its_layers_rate_and_decay():
    model = Model()
    values = by_name(model, layer_decay(model, LR, RATE))
    for name, (layer, decays) in EXPECTED.items():
        assert values[f'backbone.{name}'] == (LR * RATE**(NUM_LAYERS - 1 - layer), WEIGHT_DECAY * decays), name
    outside = {name: value for name, value in values.items() if not name.startswith('backbone.')}
    assert outside == {f'head.{name}': (LR, WEIGHT_DECAY if name == '0.weight' else 0.)
                       for name in ('0.weight', '0.bias', '1.weight', '1.bias')}


def test_decay_rate_one_leaves_two_groups():
    groups = layer_decay(Model(), LR, 1.).optimizer.param_groups
    assert [(group['lr'], group['weight_decay']) for group in groups] == [(LR, 0.), (LR, WEIGHT_DECAY)]
