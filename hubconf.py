"""Entry points of Torch Hub: ``torch.hub.load('CHECKOUT', 'cvt_nano', source='local', pretrained=True)``."""
from cvt_dense.timm import cvt_13, cvt_21, cvt_nano, cvt_w24

dependencies = ['torch', 'timm', 'mmengine', 'mmcv']
__all__ = ['cvt_13', 'cvt_21', 'cvt_nano', 'cvt_w24']
