"""What is known of a GPU without one: no tensor is created on the CPU."""
import pytest
import torch

from cvt_dense.models import CvT, ImageClassifier

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)
BACKBONES = {
    'paper': dict(), 'windows': dict(attn_cfg=WINDOWS), 'linear': dict(attn_cfg=dict(type='cvt_dense.LinearAttention')),
    'positions': dict(attn_cfg=dict(type='cvt_dense.ConvAttention', rel_pos_cfg=dict(type='cvt_dense.RelPosBias'))),
    'rotary': dict(attn_cfg=dict(type='cvt_dense.ConvAttention', rel_pos_cfg=dict(type='cvt_dense.RotaryPositions'))),
    'hybrid': dict(attn_cfg=dict(type='cvt_dense.ConvAttention', proj_cfg=dict(type='cvt_dense.HybridProjection'))),
    'recomputed': dict(with_cp=True), 'embedded': dict(pos_embed=4, layer_scale_init_value=.1, drop_path_rate=.2),
    'classifier': dict(out_type='cls_token', with_dist_token=True)}


@pytest.mark.parametrize('options', BACKBONES.values(), ids=BACKBONES)
def test_backbone_on_another_device(options):
    """PyTorch's meta device refuses a tensor that was made on the CPU."""
    model = CvT(ARCH, **options).to('meta').train()
    sum(out.sum() for out in model(torch.rand(2, 3, 49, 90, device='meta'))).backward()
    assert all(out.is_meta for out in model.eval()(torch.rand(1, 3, 64, 64, device='meta')))


def test_classifier_on_another_device():
    model = ImageClassifier(
        dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token', drop_path_rate=.1), num_classes=5,
        data_preprocessor=dict(
            type='cvt_dense.ClassificationPreprocessor', random_erasing=dict(probability=1., mode='pixel'),
            label_smoothing=.1, mixup=dict(mixup_alpha=.8, cutmix_alpha=1., switch_prob=.5))).to('meta').train()
    model.data_preprocessor.to('meta')
    batch = dict(inputs=torch.zeros(4, 3, 64, 64, dtype=torch.uint8, device='meta'),
                 labels=torch.arange(4, device='meta'))
    loss, _ = model.parse_losses(model(**model.data_preprocessor(batch, True), mode='loss'))
    loss.backward()
    assert loss.is_meta and model.eval()(model.data_preprocessor(batch)['inputs']).is_meta
