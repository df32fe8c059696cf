"""Scores are of the images that were loaded, and there are some when nothing was detected."""
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from _shapes import generate
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.structures import InstanceData
from torch.utils.data import Subset

import cvt_dense  # noqa: F401
from cvt_dense.launch.read import redirect_data_root

ROOT = Path(__file__).resolve().parents[3]
HOOK = dict(type='cvt_dense.EvaluateLoadedHook')
RUNS = itertools.count()


class Guess(BaseModel):
    """Predicts an image's own objects, displaced at random, always the same way for an image."""

    def __init__(self, found: bool = True):
        super().__init__()
        self.found = found

    def forward(self, inputs, data_samples, mode):
        for sample in data_samples:
            random = np.random.default_rng(int(''.join(c for c in Path(sample.img_path).stem if c.isdigit())))
            number = len(sample.gt_instances) if self.found else 0
            shifts = torch.tensor(random.integers(0, 4, (number, 1)))
            masks = [np.roll(mask, int(shift), -1)
                     for mask, shift in zip(sample.gt_instances.masks.masks, shifts)]
            sample.pred_instances = InstanceData(
                bboxes=sample.gt_instances.bboxes.tensor[:number] + shifts,
                labels=sample.gt_instances.labels[:number],
                scores=torch.tensor(random.random(number)),
                masks=torch.tensor(np.array(masks).reshape(number, 64, 64)).bool())
        return data_samples


MODELS.register_module(name='Guess', module=Guess, force=True)


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    return generate(tmp_path_factory.mktemp('shapes') / 'data', size=64, train=1, val=24, train_per_class=1,
                    val_per_class=1)


def write_excerpt(file: Path, ids: list[int]) -> Path:
    """An annotation file beside ``file`` of the images ``ids`` alone."""
    content = json.loads(file.read_text())
    content['images'] = [image for image in content['images'] if image['id'] in ids]
    content['annotations'] = [a for a in content['annotations'] if a['image_id'] in ids]
    excerpt = file.with_name(f'excerpt_{len(ids)}.json')
    excerpt.write_text(json.dumps(content))
    return excerpt


def detect(data: Path, tmp_path: Path, edit=lambda dataset: dataset, found: bool = True, evaluator: dict | None = None,
           hook: bool = True, **dataset) -> dict[str, float]:
    """Return scores of :class:`Guess` on the validation data; ``edit`` changes the data set that was built."""
    cfg = Config.fromfile(ROOT / 'configs/maskrcnn_cvt_nano_shapes.py')
    init_default_scope(cfg.default_scope)
    redirect_data_root(cfg, str(data / 'detection'))
    cfg.val_dataloader.dataset.update(dataset)
    cfg.val_dataloader.dataset.pipeline = [step for step in cfg.val_dataloader.dataset.pipeline
                                           if step.type != 'Resize']
    cfg.val_evaluator.update(evaluator or {})
    cfg.val_dataloader.update(num_workers=0, batch_size=2, persistent_workers=False, pin_memory=False)
    cfg.val_dataloader.dataset = edit(DATASETS.build(cfg.val_dataloader.dataset))
    runner = Runner(
        model=dict(type='Guess', found=found, _scope_='mmengine'), work_dir=str(tmp_path),
        test_dataloader=cfg.val_dataloader, test_evaluator=cfg.val_evaluator, test_cfg=dict(type='TestLoop'),
        custom_hooks=[HOOK] if hook else [], default_scope=cfg.default_scope,
        # MMEngine shares the logger, and with it the stream, of runs that have the same name in the same second.
        experiment_name=f'guess_{next(RUNS)}',
        default_hooks=dict(logger=None, checkpoint=None), log_level='INFO')
    return runner.test()


def as_subset(dataset):
    subset = Subset(dataset, [2, 3, 5])
    subset.metainfo = dataset.metainfo
    return subset


@pytest.mark.parametrize('places, options, with_file', [
    (range(8), dict(indices=8), True),
    ([2, 3, 5], dict(indices=[2, 3, 5]), False),
    ([2, 3, 5], dict(edit=as_subset), True),
])
def test_a_part_scores_as_an_annotation_file_of_it(data, tmp_path, places, options, with_file):
    file = data / 'detection/annotations/instances_val.json'
    ids = sorted(image['id'] for image in json.loads(file.read_text())['images'])
    excerpt = write_excerpt(file, [ids[place] for place in places])
    evaluator = dict(ann_file=str(file) if with_file else None)
    if not with_file:  # the objects come with the samples
        pipeline = Config.fromfile(ROOT / 'configs/maskrcnn_cvt_nano_shapes.py').val_dataloader.dataset.pipeline
        pipeline[-1].meta_keys = (*pipeline[-1].meta_keys, 'instances')
        options = dict(options, pipeline=pipeline)
    scores = detect(data, tmp_path / 'part', evaluator=evaluator, **options)
    wanted = detect(data, tmp_path / 'file', evaluator=dict(ann_file=str(excerpt)), hook=False,
                    ann_file=str(excerpt))
    if not with_file:  # then areas are those of boxes, which divides objects into small and medium otherwise
        scores, wanted = ({key: value for key, value in result.items() if not key.endswith(('_s', '_m', '_l'))}
                          for result in (scores, wanted))
    assert len(scores) >= 6 and 0.2 < scores['coco/bbox_mAP'] < 0.95
    np.testing.assert_equal(scores, wanted)


def test_all_images_score_as_ever_and_a_part_did_not(data, tmp_path):
    np.testing.assert_equal(detect(data, tmp_path / 'a'), detect(data, tmp_path / 'b', hook=False))
    part, before = (detect(data, tmp_path / f'{hook}', indices=8, hook=hook) for hook in (True, False))
    assert before['coco/bbox_mAP'] < 0.6 * part['coco/bbox_mAP']


def test_nothing_detected_scores_zero(data, tmp_path, capfd):
    scores = detect(data, tmp_path, indices=8, found=False)
    assert scores['coco/bbox_mAP'] == scores['coco/segm_mAP'] == scores['coco/bbox_mAP_50'] == 0.
    text = ''.join(capfd.readouterr())
    assert 'No detection in 8 images' in text
    assert 'is empty' not in text and 'ERROR' not in text
