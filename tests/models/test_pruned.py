"""Blocks of which some tokens are kept, against whole blocks; what chooses them."""
import pytest
import torch

from cvt_dense.analysis import record_attention
from cvt_dense.models import CvT
from cvt_dense.models.attention import Block, ConvAttention
from cvt_dense.models.variants import pruned
from cvt_dense.models.variants.pruned import PrunedAttention, PrunedBlock, choose, take

ARCH = dict(embed_dims=[8, 24], depths=[1, 3], num_heads=[1, 3])


def pruning(**kwargs):
    return dict(type='cvt_dense.PrunedAttention', **kwargs)


def pruned_block(dims: int, heads: int, keep: float, score: str = 'entropy', **kwargs) -> PrunedBlock:
    attn = PrunedAttention(keep=keep, score=score, embed_dims=dims, num_heads=heads, **kwargs)
    for name in ('proj_q', 'proj_k'):
        torch.nn.init.normal_(getattr(attn, name).weight, std=0.7)
    return PrunedBlock(dims, attn).eval()


def pair(attn_cfg, **kwargs) -> tuple[CvT, CvT]:
    """Pruned and whole, with the same weights; sharper attention than at the start, so that entropies differ."""
    whole, few = CvT(ARCH, **kwargs), CvT(ARCH, attn_cfg=attn_cfg, **kwargs)
    for name, parameter in whole.named_parameters():
        if 'attn.proj_' in name:
            torch.nn.init.normal_(parameter, std=0.5)
    few.load_state_dict(whole.state_dict())
    return few, whole


def test_keeping_all_is_the_whole_network():
    """Bit for bit, gradients and statistics too."""
    few, whole = pair(pruning(keep=1., refresh=2))
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
    block = pruned_block(12, 3, 0.3, qkv_proj_method=method).double()
    x = torch.randn(2, cls_tokens + 7 * 9, 12, dtype=torch.float64)
    got, (rows, blocks_left) = block(x, (7, 9))
    whole = Block(12, ConvAttention(12, 3, qkv_proj_method=method)).double().eval()
    whole.load_state_dict(block.state_dict())
    recorded = {}
    for name in ('proj_q', 'proj_k'):
        getattr(whole.attn, name).register_forward_hook(lambda m, args, y, name=name: recorded.update({name: y}))
    expected, _ = whole(x, (7, 9))
    q, k = (recorded[name].unflatten(2, (3, -1)).transpose(1, 2)[:, :, cls_tokens:] for name in ('proj_q', 'proj_k'))
    entropy = torch.special.entr((q @ k.mT * 12**-0.5).softmax(-1)).sum(-1).mean(1)
    order = entropy.argsort(dim=1)[:, :round(0.3 * 63)] + cls_tokens
    rows = rows.view(2, -1) - torch.tensor([[0], [cls_tokens + 63]])
    assert blocks_left == 3
    for i in range(2):
        kept = [*range(cls_tokens), *sorted(order[i].tolist())]
        assert rows[i].tolist() == kept
        torch.testing.assert_close(got[i, kept], expected[i, kept], rtol=0, atol=1e-12)
        others = sorted(set(range(x.shape[1])) - set(kept))
        assert torch.equal(got[i, others], x[i, others])


def test_many_keys_are_averaged_before_entropies(monkeypatch):
    """What is chosen then is nearly what is chosen over all of them."""
    block = pruned_block(12, 3, 0.5, qkv_proj_method='linear')
    x = torch.nn.functional.interpolate(torch.randn(1, 12, 9, 11), scale_factor=4, mode='bicubic')
    x = x.flatten(2).transpose(1, 2)
    exact = set(block(x, (36, 44))[1][0].tolist())
    monkeypatch.setattr(pruned, 'SCORED_KEYS', 400)
    assert len(exact & set(block(x, (36, 44))[1][0].tolist())) > 0.8 * len(exact)


def test_other_scores():
    """The largest tokens, or any."""
    block = pruned_block(8, 1, 0.25, 'norm')
    x = torch.randn(1, 1 + 16, 8)
    assert block(x, (4, 4))[1][0].tolist() == [0, *sorted((x[0, 1:].norm(dim=1).argsort()[-4:] + 1).tolist())]
    block.attn.score = 'random'
    assert len({tuple(block(x, (4, 4))[1][0].tolist()) for _ in range(20)}) > 10


def test_tokens_are_chosen_anew_after_refresh_blocks(monkeypatch):
    chosen, taken = [], []
    monkeypatch.setattr(pruned, 'choose', lambda *args: chosen.append(choose(*args)) or chosen[-1])
    monkeypatch.setattr(pruned, 'take', lambda x, rows: taken.append(rows) or take(x, rows))
    model, _ = pair([None, pruning(keep=0.5, refresh=2)])
    model.eval()(torch.rand(2, 3, 48, 64))
    assert len(chosen) == 2 and [rows is chosen[0] for rows in taken] == [True] * 4 + [False] * 2
    assert taken[-1] is chosen[1] and len(chosen[0]) == 2 * (1 + 24)


def test_trains_under_autocast():
    few, _ = pair(pruning(keep=0.5, refresh=2))
    with torch.autocast('cpu', torch.bfloat16):
        sum((y.float()**2).mean() for y in few(torch.rand(2, 3, 57, 66))).backward()
    assert all(p.grad.isfinite().all() for p in few.parameters())


def test_attention_of_a_pruned_network_is_recorded():
    """Of all queries, those that are left out too: what they would attend to."""
    found = []
    for model in pair(pruning(keep=0.3, score='random')):
        with torch.no_grad(), record_attention(model.eval(), queries=['cls', 'all']) as records:
            model(torch.ones(1, 3, 57, 66))
        found.append(records)
    assert list(found[0]) == list(found[1]) and found[0]['stage1.blocks.2'].weights.shape[2] == 1 + 1 + 7 * 8
    assert torch.equal(found[0]['stage0.blocks.0'].weights, found[1]['stage0.blocks.0'].weights)
