"""Tiny networks with weights that show what is lost, and their exported files, shared by all tests of this folder."""
import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmdet
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

for package in ('onnx', 'onnxscript', 'onnxruntime', 'openvino', 'nncf'):
    pytest.importorskip(package)

from load_tool import ROOT
from random_weights import randomise

from cvt_dense.deploy import inputs
from cvt_dense.deploy.check import random_images
from cvt_dense.deploy.export import Exporter
from cvt_dense.shapes import CLASSES

TWO_STAGES = dict(_delete_=True, embed_dims=(8, 16), depths=(1, 1), num_heads=(1, 2))
STOCK = Path(mmdet.__file__).parent / '.mim/configs'
THREE_STAGES = dict(_delete_=True, embed_dims=(8, 16, 16), depths=(1, 1, 1), num_heads=(1, 2, 2))
# Of a two-stage detector with maps of two strides.
TWO_LEVELS = {
    'model.backbone.arch': TWO_STAGES, 'model.neck.in_channels': [8, 16], 'model.neck.num_outs': 2,
    'model.rpn_head.anchor_generator.strides': [4, 8], 'model.roi_head.bbox_roi_extractor.featmap_strides': [4, 8],
    'model.roi_head.mask_roi_extractor.featmap_strides': [4, 8], 'model.roi_head.mask_head.num_convs': 1,
    'model.test_cfg.rcnn.score_thr': 0.12}
CONFIGS = dict(
    classification=('cvt_nano_shapes.py', {
        'model.backbone.arch': THREE_STAGES, 'model.backbone.out_type': 'cls_token',
        'test_dataloader.dataset.transform.crop_pct': 0.8,
        'test_dataloader.dataset.transform.interpolation': 'bicubic'}),
    segmentation=('upernet_cvt_nano_shapes.py', {
        'model.backbone.arch': TWO_STAGES, 'model.decode_head.in_channels': [8, 16],
        'model.decode_head.in_index': [0, 1], 'model.decode_head.pool_scales': (1, 3), 'model.decode_head.channels': 8,
        'model.auxiliary_head': None}),
    detection=('maskrcnn_cvt_nano_shapes.py', {
        **TWO_LEVELS, 'model.roi_head.bbox_head.reg_class_agnostic': False,
        'model.roi_head.mask_head.class_agnostic': False}),
    retinanet=('retinanet_cvt13_coco.py', {
        'model.backbone.arch': TWO_STAGES, 'model.neck.in_channels': [16, 16], 'model.neck.out_channels': 8,
        'model.neck.num_outs': 2, 'model.bbox_head.in_channels': 8,
        'model.bbox_head.anchor_generator.strides': [8, 16], 'model.bbox_head.feat_channels': 8,
        'model.bbox_head.num_classes': 8, 'model.bbox_head.stacked_convs': 1, 'model.test_cfg.nms_pre': 40}),
    cascade=('../benchmarks/heads/cascade.py', {  # with a single map, since each costs seconds
        **TWO_LEVELS, 'model.neck.start_level': 1, 'model.neck.num_outs': 1,
        'model.rpn_head.anchor_generator.strides': [8], 'model.roi_head.bbox_roi_extractor.featmap_strides': [8],
        'model.roi_head.mask_roi_extractor.featmap_strides': [8]}))


@dataclass
class Network:
    """A config file of a tiny network, its content, the model, and a checkpoint."""
    config: Path
    cfg: Config
    model: torch.nn.Module
    checkpoint: Path

    def exporter(self, size: tuple[int, int], **options: Any) -> Exporter:
        """Return an exporter that keeps what it reports in ``lines``."""
        lines = []
        about = dict(classes=self.classes, config=self.config.name, config_hash='0' * 64, **inputs.describe(self.cfg))
        exporter = Exporter(self.model, size, about, report=lines.append, **options)
        exporter.lines = lines
        return exporter

    @property
    def classes(self) -> list[str]:
        return torch.load(self.checkpoint)['meta']['dataset_meta']['classes']

    def inputs(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the network gets of RGB images in testing, before a detector's padding."""
        if self.model.__class__.__name__ == 'ImageClassifier':
            return self.model.data_preprocessor(dict(inputs=images))['inputs']
        data = self.model.data_preprocessor(dict(inputs=list(images.flip(1))))
        return data['inputs'][..., :images.shape[2], :images.shape[3]]


HEADS = dict(fcos='fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py',
             gfl='gfl/gfl_r50_fpn_1x_coco.py', rtmdet='rtmdet/rtmdet_l_8xb32-300e_coco.py')


def use_head(cfg: Config, name: str) -> None:
    """Replace RetinaNet's head, for RTMDet also the neck, by those of a stock config of mmdet's."""
    stock = Config.fromfile(STOCK / HEADS[name]).model
    cfg.model.type, cfg.model.test_cfg = stock.type, dict(stock.test_cfg, nms_pre=40)
    cfg.model.train_cfg = stock.get('train_cfg')
    cfg.model.bbox_head = dict(stock.bbox_head, in_channels=8, feat_channels=8, stacked_convs=1, num_classes=8,
                               norm_cfg=dict(type='BN') if name == 'rtmdet' else dict(type='GN', num_groups=4))
    cfg.model.bbox_head.get('anchor_generator', cfg.model.bbox_head).strides = [8, 16]
    if name == 'rtmdet':  # whose neck refuses images that are not padded
        cfg.model.neck = dict(stock.neck, in_channels=[16, 16], out_channels=8, num_csp_blocks=1)
        cfg.model.data_preprocessor.pad_size_divisor = 32


@pytest.fixture(scope='session')
def network(tmp_path_factory):
    """Build a network once: ``network(task)``, where a task is a key of ``CONFIGS`` or ``HEADS``."""
    folder, built = tmp_path_factory.mktemp('networks'), {}

    def get(task: str) -> Network:
        if task not in built:
            name, options = CONFIGS['retinanet' if task in HEADS else task]
            cfg = Config.fromfile(ROOT / 'configs' / name)
            cfg.merge_from_dict(copy.deepcopy(options))
            if task in HEADS:
                use_head(cfg, task)
            if task == 'cascade':
                cfg.model.roi_head.update(num_stages=2, bbox_head=cfg.model.roi_head.bbox_head[:2])
            cfg.dump(folder / f'{task}.py')
            init_default_scope(cfg.get('default_scope') or 'mmengine')
            torch.manual_seed(0)
            model = randomise(MODELS.build(cfg.model))
            classes = ['background'] * (task == 'segmentation') + list(CLASSES)
            torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dict(classes=classes))),
                       folder / f'{task}.pth')
            built[task] = Network(folder / f'{task}.py', cfg, model, folder / f'{task}.pth')
        init_default_scope(built[task].cfg.get('default_scope') or 'mmengine')
        return built[task]

    return get


@pytest.fixture(scope='session')
def exporter(network):
    """The exporter of a classifier for raw images; its files start from one ONNX graph."""
    classifier = network('classification')
    images = [classifier.inputs(random_images((64, 64), 1, i)) for i in range(6)]
    return classifier.exporter((64, 64), raw_input=True, keep=('backbone.stage1.patch_embed', ), images=images)


@pytest.fixture(scope='session')
def segmentor(network):
    """The exporter of a segmentor for any size."""
    made = network('segmentation')
    images = [made.inputs(random_images((64, 48), 1, i)) for i in range(4)]
    return made.exporter((64, 48), dynamic=None, images=images)


@pytest.fixture(scope='session')
def detector(network):
    """The exporter of Mask R-CNN for any size."""
    return network('detection').exporter((64, 96), dynamic=None)


@pytest.fixture(scope='session')
def files(tmp_path_factory, exporter, network):
    """Exported files by name: 'classifier' and 'segmentor'."""
    folder = tmp_path_factory.mktemp('files')
    exported = {}
    for name, made in (('classifier.onnx', exporter), ('segmentor.onnx', network('segmentation').exporter((64, 64)))):
        assert made.export(folder / name), made.lines
        exported[Path(name).stem] = folder / name
    return exported
