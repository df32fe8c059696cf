"""Blocks of which some tokens are kept, against whole blocks; what chooses them."""
import pytest
import torch

from cvt_dense.models import CvT
from cvt_dense.models.attention import Block, ConvAttention
from cvt_dense.models.variants import PrunedCvT, pruned
from cvt_dense.models.variants.pruned import choose, take

ARCH = dict(embed_dims=[8, 24], depths=[1, 3], num_heads=[1, 3])


def pruned_block(dims: int, heads: int, keep: float, score: str = 'entropy', **kwargs):
    """Return a stage and its one block."""
    stage = PrunedCvT(keep=keep, score=score, arch=dict(
        embed_dims=[dims], depths=[1], num_heads=[heads], **kwargs)).eval().stages[0]
    for name in ('proj_q', 'proj_k'):
        torch.nn.init.normal_(getattr(stage.blocks[0].attn, name).weight, std=0.7)
    return stage, stage.blocks[0]


def pair(**pruning) -> tuple[CvT, CvT]:
    """Pruned and whole, with the same weights; sharper attention than at the start, so that entropies differ."""
    whole, few = CvT(ARCH), PrunedCvT(arch=ARCH, **pruning)
    for name, parameter in whole.named_parameters():
        if 'attn.proj_' in name:
            torch.nn.init.normal_(parameter, std=0.5)
    few.load_state_dict(whole.state_dict())
    return few, whole


def test_keeping_all_is_the_whole_network():
    """Bit for bit, gradients and statistics too."""
    few, whole = pair(keep=1., refresh=2)
    x, results = torch.rand(2, 3, 57, 66), []
    for model in (few, whole):
        image = x.clone().requires_grad_()
        outs = model(image)
        sum((y**2).mean() for y in outs).backward()
        results.append([*outs, image.grad, *(p.grad for p in model.parameters()), *model.buffers()])
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize('cls_tokens, method', [(0, 'dw_bn'), (1, 'dw_bn'), (1, 'linear'), (1, 'avg')])
def test_kept_tokens_are_those_of_lowest_entropy_and_the_others_stay(cls_tokens, method):
    stage, block = pruned_block(12, 3, 0.3, qkv_proj_method=method)
    block.double()
    x = torch.randn(2, cls_tokens + 7 * 9, 12, dtype=torch.float64)
    got, rows = stage.run_block(block, x, (7, 9), None)
    whole = Block(12, ConvAttention(12, 3, qkv_proj_method=method)).double().eval()
    whole.load_state_dict(block.state_dict())
    recorded = {}
    for name in ('proj_q', 'proj_k'):
        getattr(whole.attn, name).register_forward_hook(lambda m, args, y, name=name: recorded.update({name: y}))
    expected = whole(x, (7, 9))
    q, k = (recorded[name].unflatten(2, (3, -1)).transpose(1, 2)[:, :, cls_tokens:] for name in ('proj_q', 'proj_k'))
    entropy = torch.special.entr((q @ k.mT * 12**-0.5).softmax(-1)).sum(-1).mean(1)
    order = entropy.argsort(dim=1)[:, :round(0.3 * 63)] + cls_tokens
    rows = rows.view(2, -1) - torch.tensor([[0], [cls_tokens + 63]])
    for i in range(2):
        kept = [*range(cls_tokens), *sorted(order[i].tolist())]
        assert rows[i].tolist() == kept
        torch.testing.assert_close(got[i, kept], expected[i, kept], rtol=0, atol=1e-12)
        others = sorted(set(range(x.shape[1])) - set(kept))
        assert torch.equal(got[i, others], x[i, others])


def test_tokens_are_chosen_anew_after_refresh_blocks(monkeypatch):
    chosen, taken = [], []
    monkeypatch.setattr(pruned, 'choose', lambda *args: chosen.append(choose(*args)) or chosen[-1])
    monkeypatch.setattr(pruned, 'take', lambda x, rows: taken.append(rows) or take(x, rows))
    model, _ = pair(keep=[None, 0.5], refresh=2)
    model.eval()(torch.rand(2, 3, 48, 64))
    assert len(chosen) == 2 and [rows is chosen[0] for rows in taken] == [True] * 4 + [False] * 2
    assert taken[-1] is chosen[1] and len(chosen[0]) == 2 * (1 + 24)


@pytest.mark.parametrize('options', [dict(keep=0.), dict(keep=1.5), dict(keep=0.5, refresh=0),
                                     dict(keep=0.5, score='size'), dict(keep=[0.5])])
def test_wrong_options(options):
    with pytest.raises(ValueError, match='keep'):
        PrunedCvT(arch=ARCH, **options)
