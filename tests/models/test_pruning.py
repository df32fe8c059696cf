"""Blocks of which some tokens are kept, against whole blocks; what selects them; compiled, exported, refused."""
import copy

import pytest
import torch

from cvt_dense.analysis import record_attention
from cvt_dense.models import CvT
from cvt_dense.models.layers import pruning
from cvt_dense.models.layers.pruning import PrunedBlock, choose, take

ARCH = dict(embed_dims=[8, 24], depths=[1, 3], num_heads=[1, 3])


def pair(token_pruning, **kwargs) -> tuple[CvT, CvT]:
    """Pruned and whole, with the same weights; sharper attention than at the start, so that entropies differ."""
    whole, pruned = CvT(ARCH, **kwargs), CvT(ARCH, token_pruning=token_pruning, **kwargs)
    for name, parameter in whole.named_parameters():
        if 'attn.proj_' in name:
            torch.nn.init.normal_(parameter, std=0.5)
    pruned.load_state_dict(whole.state_dict())
    return pruned, whole


def results(model: CvT, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs and all gradients."""
    x = x.clone().requires_grad_()
    outs = model(x)
    sum((y**2).mean() for y in outs).backward()
    return [*outs, x.grad, *(p.grad for p in model.parameters()), *model.buffers()]


def test_keeping_all_is_the_whole_network():
    """Bit for bit, gradients and statistics too; and with no pruning at all, seeds give the weights they gave."""
    pruned, whole = pair(dict(keep=1.0, refresh=2))
    x = torch.rand(2, 3, 57, 66)
    assert list(pruned.state_dict()) == list(whole.state_dict())
    for got, expected in zip(results(pruned, x), results(whole, x), strict=True):
        assert torch.equal(got, expected)
    # kept by a block that can prune, not left to the whole one
    block = pruned.stage1.blocks[0].eval()
    some = PrunedBlock(24, 3, keep=0.999, score='entropy').eval()
    some.load_state_dict(block.state_dict())
    x = torch.rand(2, 1 + 5 * 7, 24)
    got, rows = some(x, (5, 7))
    assert torch.equal(rows, torch.arange(2 * 36)) and torch.equal(got, block(x, (5, 7)))
    torch.manual_seed(3)
    seeded = CvT(ARCH, token_pruning=dict(keep=0.5))
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(seeded.parameters(), CvT(ARCH).parameters(), strict=True))


@pytest.mark.parametrize('method', ['dw_bn', 'linear', 'avg'])
@pytest.mark.parametrize('cls_tokens', [0, 1])
def test_kept_tokens_are_those_of_lowest_entropy_and_the_others_stay(cls_tokens, method):
    block = PrunedBlock(12, 3, keep=0.3, score='entropy', method=method).double().eval()
    for name in ('proj_q', 'proj_k'):
        torch.nn.init.normal_(getattr(block.attn, name).weight, std=0.7)
    x = torch.randn(2, cls_tokens + 7 * 9, 12, dtype=torch.float64)
    got, rows = block(x, (7, 9))
    whole = copy.deepcopy(block)
    whole.__class__ = block.__class__.__mro__[1]
    whole.attn.__class__ = block.attn.__class__.__mro__[1]
    seen = {}
    for name in ('proj_q', 'proj_k'):
        getattr(whole.attn, name).register_forward_hook(lambda m, args, y, name=name: seen.update({name: y}))
    expected = whole(x, (7, 9))
    q, k = (seen[name].unflatten(2, (3, -1)).transpose(1, 2)[:, :, cls_tokens:] for name in ('proj_q', 'proj_k'))
    entropy = torch.special.entr((q @ k.mT * 12**-0.5).softmax(-1)).sum(-1).mean(1)
    order = entropy.argsort(dim=1)[:, :round(0.3 * 63)] + cls_tokens
    rows = rows.view(2, -1) - torch.tensor([[0], [cls_tokens + 63]])
    for i in range(2):
        kept = [*range(cls_tokens), *sorted(order[i].tolist())]
        assert rows[i].tolist() == kept
        torch.testing.assert_close(got[i, kept], expected[i, kept], rtol=0, atol=1e-12)
        others = sorted(set(range(x.shape[1])) - set(kept))
        assert torch.equal(got[i, others], x[i, others])


def test_many_keys_are_averaged_before_entropies(monkeypatch):
    """What is chosen then is nearly what is chosen over all of them."""
    block = PrunedBlock(12, 3, keep=0.5, score='entropy', method='linear').eval()
    for name in ('proj_q', 'proj_k'):
        torch.nn.init.normal_(getattr(block.attn, name).weight, std=0.3)
    x = torch.randn(1, 12, 9, 11)
    x = torch.nn.functional.interpolate(x, scale_factor=4, mode='bicubic').flatten(2).transpose(1, 2)
    exact = set(block(x, (36, 44))[1].tolist())
    monkeypatch.setattr(pruning, 'SCORED_KEYS', 400)
    assert len(exact & set(block(x, (36, 44))[1].tolist())) > 0.8 * len(exact)


def test_controls_and_refresh(monkeypatch):
    """The largest tokens, or any; chosen once for ``refresh`` blocks, then again."""
    block = PrunedBlock(8, 1, keep=0.25, score='norm').eval()
    x = torch.randn(1, 1 + 16, 8)
    _, rows = block(x, (4, 4))
    assert rows.tolist() == [0, *sorted((x[0, 1:].norm(dim=1).argsort()[-4:] + 1).tolist())]
    block.score = 'random'
    assert len({tuple(block(x, (4, 4))[1].tolist()) for _ in range(20)}) > 10
    for score in pruning.SCORES:
        chosen = []
        monkeypatch.setattr(pruning, 'choose', lambda *args: chosen.append(choose(*args)) or chosen[-1])
        model, _ = pair(dict(keep=[None, 0.5], refresh=2, score=score))
        taken = []
        monkeypatch.setattr(pruning, 'take', lambda x, rows: taken.append(rows) or take(x, rows))
        model.eval()(torch.rand(2, 3, 48, 64))
        assert len(chosen) == 2 and [rows is chosen[0] for rows in taken] == [True] * 4 + [False] * 2
        assert taken[-1] is chosen[1] and len(chosen[0]) == 2 * (1 + 24)


def test_trains_and_recomputes():
    """Every parameter gets a gradient, with and without activation checkpointing the same."""
    pruned, _ = pair(dict(keep=[0.6, 0.5], refresh=2), norm_eval=True)
    recomputed = CvT(ARCH, token_pruning=dict(keep=[0.6, 0.5], refresh=2), norm_eval=True, with_cp=True)
    recomputed.load_state_dict(pruned.state_dict())
    x = torch.rand(2, 3, 57, 66)
    for got, expected in zip(results(recomputed, x), results(pruned, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    assert all(p.grad.abs().sum() > 0 for name, p in pruned.named_parameters() if 'proj_k.bias' not in name)
    with torch.autocast('cpu', torch.bfloat16):
        sum((y.float()**2).mean() for y in pruned(x)).backward()
    assert all(p.grad.isfinite().all() for p in pruned.parameters())


def test_attention_of_a_pruned_network_is_recorded():
    """Of all queries, those that are left out too: what they would look at."""
    pruned, whole = pair(dict(keep=0.3, score='random'))
    found = []
    for model in (pruned, whole):
        with torch.no_grad(), record_attention(model.eval(), queries=['cls', 'all']) as records:
            model(torch.ones(1, 3, 57, 66))
        found.append(records)
    assert list(found[0]) == list(found[1]) and found[0]['stage1.blocks.2'].weights.shape[2] == 1 + 1 + 7 * 8
    assert torch.equal(found[0]['stage0.blocks.0'].weights, found[1]['stage0.blocks.0'].weights)


@pytest.fixture(scope='module')
def deployed():
    torch.manual_seed(0)
    model, _ = pair(dict(keep=[0.6, 0.5], refresh=2))
    model, x = model.eval().fuse(), torch.rand(2, 3, 49, 64)
    with torch.no_grad():
        return model, x, model(x)


def test_compiles(deployed):
    """In one graph. What inductor makes of it takes half a minute, and was the same."""
    model, x, expected = deployed
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend='aot_eager')
        for got, wanted in zip(compiled(x), expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)


def test_exports_to_onnx(deployed, tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    model, x, expected = deployed
    with torch.no_grad():
        torch.onnx.export(model, (x, ), tmp_path / 'cvt.onnx', dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'cvt.onnx')
    for got, wanted in zip(session.run(None, {session.get_inputs()[0].name: x.numpy()}), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize('given, kwargs, message', [
    (dict(keep=[None, 1.5]), {}, 'token_pruning.keep=1.5 in stage 1: must be a share of the tokens, above 0 and up to '
                                 '1, or None'),
    (dict(keep=0), {}, 'token_pruning.keep=0 in stage 0: must be a share'),
    (dict(keep=True), {}, 'token_pruning.keep=True in stage 0: must be a share'),
    (dict(keep=[0.5]), {}, r'token_pruning.keep=\[0.5\] has 1 values, but arch has 2 stages'),
    (dict(keep=0.5, refresh=0), {}, 'token_pruning.refresh=0: must be a number of blocks, 1 or more'),
    (dict(keep=0.5, score='rank'), {}, r"token_pruning.score='rank': allowed are \('entropy', 'random', 'norm'\)"),
    (dict(keep=0.5, ratio=1), {}, 'token_pruning={.*}: must be None or a dict with keep, one share or one a stage'),
    (0.5, {}, 'token_pruning=0.5: must be None or a dict with keep'),
    (dict(keep=[None, 0.5]), dict(window_size=[4, 4]), 'token_pruning.keep=0.5 with window_size=4 in stage 1: each '
                                                      'window would hold another number of kept tokens'),
])
def test_refused(given, kwargs, message):
    with pytest.raises(ValueError, match=message):
        CvT(ARCH, token_pruning=given, **kwargs)


def test_windows_in_other_stages():
    CvT(ARCH, token_pruning=dict(keep=[None, 0.5]), window_size=[4, None]).eval()(torch.rand(1, 3, 64, 64))
    CvT(ARCH, token_pruning=dict(keep=1.0), window_size=4)
