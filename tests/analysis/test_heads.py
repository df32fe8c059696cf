"""Importance of heads against gates that autograd differentiates, and networks with fewer heads."""
import copy
import re
from pathlib import Path

import pytest
import torch
from load_tool import run_tool
from mmengine.config import Config
from tiny_training import write_config

from cvt_dense.analysis import choose_heads, head_importance, prune_heads, record_attention
from cvt_dense.models import CvT, ImageClassifier
from cvt_dense.registry import MODELS
from cvt_dense.weights import huggingface_config

ARCH = dict(embed_dims=[8, 24], depths=[1, 2], num_heads=[2, 4])
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)


def build(**kwargs) -> CvT:
    model = CvT(ARCH, **kwargs).eval()
    for name, parameter in model.named_parameters():
        if 'attn.proj' in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def test_importance_is_the_gates_gradient_times_entropy():
    model, images = build(frozen_stages=0).double(), [torch.rand(1, 3, 41, 52, dtype=torch.float64) for _ in range(3)]

    def loss(x):
        return sum((y**2).mean() * (i + 1) for i, y in enumerate(model(x)))

    found = head_importance(model, [lambda x=x: loss(x) for x in images])
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    gates = {f'stage{i}.blocks.{j}': torch.ones(heads, dtype=torch.float64, requires_grad=True)
             for i, (heads, depth) in enumerate(((2, 1), (4, 2))) for j in range(depth)}
    for name, gate in gates.items():
        model.get_submodule(name).attn.proj.register_forward_pre_hook(
            lambda m, args, gate=gate: args[0] * gate.repeat_interleave(args[0].shape[2] // len(gate)))
    for name, gate in gates.items():
        gradient = sum(torch.autograd.grad(loss(x), gate)[0].abs() for x in images) / 3
        entropy = 0
        for x in images:
            with torch.no_grad(), record_attention(model, name, 'all') as records:
                model(x)
            weights = records[name].weights
            entropy += torch.special.entr(weights).sum(-1).mean((0, 2)) / torch.tensor(weights.shape[3]).log() / 3
        for key, wanted in (('gradient', gradient), ('entropy', gradient * entropy)):
            torch.testing.assert_close(found[name][key], wanted / wanted.norm(), rtol=1e-4, atol=1e-6)


def test_choose_heads():
    importance = {'a': torch.tensor([.1]), 'b': torch.tensor([.9, .2, .8]), 'c': torch.tensor([.3, .4])}
    assert choose_heads(importance, 1.) == dict(a=[0], b=[0, 1, 2], c=[0, 1])
    assert choose_heads(importance, 0.7) == dict(a=[0], b=[0, 2], c=[1])
    assert choose_heads(importance, 0.01) == dict(a=[0], b=[0], c=[1])


@pytest.mark.parametrize('kwargs', [dict(), dict(attn_cfg=WINDOWS), dict(arch=dict(ARCH, qkv_bias=False)),
                                    dict(arch=dict(ARCH, head_dims=[None, 6]))], ids=str)
def test_a_pruned_network_is_the_whole_one_without_these_heads(kwargs):
    """Also when it is pruned a second time, and in a classifier."""
    model = ImageClassifier(dict(type='cvt_dense.CvT', **{**dict(arch=ARCH, out_type='cls_token'), **kwargs}), 3).eval()
    for name, parameter in model.named_parameters():
        if 'attn.proj' in name:
            torch.nn.init.normal_(parameter, std=0.4)
    x, arch, whole, state = torch.rand(2, 3, 64, 64), kwargs.get('arch', ARCH), copy.deepcopy(model), model.state_dict()
    for kept, gone in (({'stage0.blocks.0': [1], 'stage1.blocks.0': [0, 2, 3], 'stage1.blocks.1': [1, 2]},
                        {'stage0.blocks.0': [0], 'stage1.blocks.0': [1], 'stage1.blocks.1': [0, 3]}),
                       ({'stage0.blocks.0': [0], 'stage1.blocks.0': [0, 2], 'stage1.blocks.1': [0]},
                        {'stage0.blocks.0': [], 'stage1.blocks.0': [2], 'stage1.blocks.1': [2]})):
        state, arch = prune_heads(state, model, kept, arch)
        model = ImageClassifier(dict(type='cvt_dense.CvT', **{**kwargs, 'arch': arch}, out_type='cls_token'), 3).eval()
        model.load_state_dict(state)
        with torch.no_grad():
            for name, heads in gone.items():
                weight = whole.backbone.get_submodule(name).attn.proj.weight
                weight.unflatten(1, (-1, arch['head_dims'][int(name[5])]))[:, heads] = 0
            torch.testing.assert_close(model(x), whole(x), rtol=0, atol=1e-5)
    assert arch['num_heads'] == [[1], [2, 1]] and arch['head_dims'] == [4, 6]
    assert model.backbone.stage1.blocks[0].attn.scale == 24**-0.5
    with pytest.raises(ValueError, match='stage0.blocks.0.attn.proj_q.weight'):
        huggingface_config(state, (2, 4))
    with pytest.raises(ValueError, match='heads were pruned'):
        CvT(ARCH if 'attn_cfg' in kwargs else kwargs.get('arch', ARCH)).load_strictly(state, 'pruned.pth')


def test_command(tmp_path):
    """What it writes loads with its config and with the arch in the checkpoint; nothing else is touched."""
    config = write_config(tmp_path)
    cfg = Config.fromfile(config)
    config.write_text(config.read_text() + "work_dir = 'work_dirs/original'\n")
    torch.save(dict(state_dict=MODELS.build(cfg.model).state_dict(), meta={}), tmp_path / 'model.pth')
    args = (config, tmp_path / 'model.pth', tmp_path / 'out.pth', '--keep', '0.5', '--images', '2')
    output = run_tool('prune_heads', *args)
    written, saved = Config.fromfile(tmp_path / 'out.py'), torch.load(tmp_path / 'out.pth', weights_only=True)
    arch = saved['meta']['arch']
    assert written.model.backbone.arch.to_dict() == arch and Path(written.load_from) == tmp_path / 'out.pth'
    assert 'work_dir' not in written  # training it would move the original run aside
    for arch in (written.model.backbone.arch, arch):
        model = MODELS.build(dict(written.model, backbone=dict(written.model.backbone, arch=arch)))
        model.load_state_dict(saved['state_dict'])
    assert re.search(r'^5 of 10 heads and [\d,]+ of the backbone.s [\d,]+ parameters -> ', output, re.M)
    assert sum(map(sum, arch['num_heads'])) == 5 == sum(map(len, saved['meta']['heads'].values()))
    before = (tmp_path / 'out.pth').read_bytes()
    assert '--force' in run_tool('prune_heads', *args, rc=2) and (tmp_path / 'out.pth').read_bytes() == before
