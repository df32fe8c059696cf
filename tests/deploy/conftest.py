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
from cvt_dense.recipes.shapes import CLASSES

STOCK = Path(mmdet.__file__).parent / '.mim/configs'
# Stages of a block each, with the channels of CvT-nano and CvT-13.
NARROW = dict(embed_dims=(32, 64, 128), depths=(1, 1, 1), num_heads=(1, 2, 4))
WIDE = dict(NARROW, embed_dims=(64, 192, 384), num_heads=(1, 3, 6))
CONFIGS = dict(
    classification=('configs/cvt_nano_shapes.py', NARROW, {
        'model.backbone.out_type': 'cls_token', 'test_dataloader.dataset.transform.crop_pct': 0.8,
        'test_dataloader.dataset.transform.interpolation': 'bicubic'}),
    segmentation=('configs/upernet_cvt_nano_shapes.py', NARROW, {'model.auxiliary_head': None}),
    detection=('configs/maskrcnn_cvt_nano_shapes.py', NARROW, {
        'model.roi_head.bbox_head.reg_class_agnostic': False, 'model.roi_head.mask_head.class_agnostic': False,
        'model.test_cfg.rcnn.score_thr': 0.12}),
    retinanet=('configs/retinanet_cvt13_coco.py', WIDE, {
        'model.bbox_head.num_classes': 8, 'model.bbox_head.stacked_convs': 1, 'model.test_cfg.nms_pre': 40}),
    cascade=('benchmarks/heads/cascade.py', NARROW, {'model.test_cfg.rcnn.score_thr': 0.12}),
    dino=('benchmarks/heads/dino.py', NARROW, {}),
    fcos=('benchmarks/heads/fcos.py', NARROW, {'model.test_cfg.nms_pre': 40}),
    gfl=('benchmarks/heads/gfl.py', NARROW, {'model.test_cfg.nms_pre': 40}),
    rtmdet=('benchmarks/heads/rtmdet.py', NARROW, {  # whose neck refuses images that are not padded
        'model.test_cfg.nms_pre': 40, 'model.data_preprocessor.pad_size_divisor': 1}),
    mask2former=('benchmarks/heads/mask2former.py', NARROW, {}),
    panoptic=(STOCK / 'mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py', NARROW, {
        'model.backbone': dict(_delete_=True, type='cvt_dense.CvT', out_indices=(0, 1, 2, 3)),
        'model.panoptic_head.in_channels': [32, 64, 128, 128], 'model.panoptic_head.num_queries': 10,
        'model.panoptic_head.pixel_decoder.encoder.num_layers': 1,
        'model.panoptic_head.transformer_decoder.num_layers': 1,
        'model.test_cfg.object_mask_thr': 0.01, 'model.test_cfg.iou_thr': 0.}))


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
        about = dict(classes=self.classes, config=self.config.name, config_hash='0' * 64,
                     **inputs.describe(self.cfg))
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


@pytest.fixture(scope='session')
def network(tmp_path_factory):
    """Build a network once: ``network(task)``, where a task is a key of ``CONFIGS``."""
    folder, built = tmp_path_factory.mktemp('networks'), {}

    def get(task: str) -> Network:
        if task not in built:
            name, arch, options = CONFIGS[task]
            cfg = Config.fromfile(ROOT / name)
            cfg.merge_from_dict(copy.deepcopy(options))
            cfg.model.backbone.arch = arch
            cfg.dump(folder / f'{task}.py')
            init_default_scope(cfg.get('default_scope') or 'mmengine')
            torch.manual_seed(0)
            model = randomise(MODELS.build(copy.deepcopy(cfg.model)))  # DINO changes it
            classes = ['background'] * (task in ('segmentation', 'mask2former')) + list(CLASSES)
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
def files(tmp_path_factory, exporter, segmentor):
    """Exported files by name: 'classifier' and 'segmentor'."""
    folder = tmp_path_factory.mktemp('files')
    exported = {}
    for name, made in (('classifier.onnx', exporter), ('segmentor.onnx', segmentor)):
        assert made.export(folder / name), made.lines
        exported[Path(name).stem] = folder / name
    return exported
