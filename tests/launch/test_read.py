"""What tools/train.py and tools/test.py do to a config."""
from typing import Any

import pytest
from load_tool import ROOT
from mmengine.config import Config
from mmengine.dataset import BaseDataset, ConcatDataset
from mmengine.registry import DefaultScope
from templates_edited import recipe

from cvt_dense.config import datasets_of, dicts, redirect_data_root, values
from cvt_dense.engine.data_sets import load_whole_images
from cvt_dense.errors import UserError
from cvt_dense.launch.runs import TestRun, TrainRun
from cvt_dense.launch.settings import read_test, read_training
from cvt_dense.published import read_config


def paths_below(cfg: Config, roots: tuple[str, ...]) -> list[str]:
    """Return the texts of data loaders and evaluators that begin with one of ``roots``."""
    parts = {key: value for key, value in cfg.items() if key.endswith(('_dataloader', '_evaluator'))}
    return [text for _, text in values(parts) if isinstance(text, str) and text.startswith(roots)]


@pytest.mark.parametrize('name', sorted(path.stem for path in ROOT.glob('configs/*.py')))
def test_data_root_of_every_config(name, tmp_path):
    cfg = recipe(name)
    loaders = [cfg[key] for key in cfg if key.endswith('_dataloader') and cfg[key]]
    roots = tuple(node['data_root'].rstrip('/') for node in dicts(loaders) if node.get('data_root'))
    before = len(paths_below(cfg, roots))
    redirect_data_root(cfg, str(tmp_path))
    assert not paths_below(cfg, roots) and len(paths_below(cfg, (str(tmp_path), ))) == before >= len(loaders) > 0


def test_data_root_in_wrappers_evaluators_and_below_the_old_one():
    part = dict(type='mmdet.CocoDataset', data_root='data/coco/', ann_file='annotations/train.json')
    val = dict(dataset=dict(data_root='data/coco/val/', other='data/coconut'))
    joined = dict(type='ConcatDataset', datasets=[part, dict(part, data_root='data/coco')])
    cfg = Config(dict(
        data_root='data/coco/', train_dataloader=dict(dataset=dict(type='RepeatDataset', dataset=joined)),
        val_dataloader=val, test_dataloader=val, test_evaluator=None,
        val_evaluator=[dict(type='mmdet.CocoMetric', ann_file='data/coco/annotations/val.json')]))
    redirect_data_root(cfg, 'data/coco/mini')
    parts = cfg.train_dataloader.dataset.dataset.datasets
    assert [p.data_root for p in (cfg, *parts)] == ['data/coco/mini/', 'data/coco/mini/', 'data/coco/mini']
    assert [p.ann_file for p in parts] == ['annotations/train.json'] * 2
    assert cfg.val_dataloader.dataset == cfg.test_dataloader.dataset == dict(
        data_root='data/coco/mini/val/', other='data/coconut')
    assert (cfg.data_root, cfg.val_evaluator[0].ann_file) == ('data/coco/mini/', 'data/coco/mini/annotations/val.json')
    cfg.val_dataloader.dataset.data_root = '/elsewhere'
    with pytest.raises(UserError, match='elsewhere'):  # has no folder in common with the others
        redirect_data_root(cfg, 'new')


@pytest.mark.parametrize('name', ['dino_cvt13_coco', 'upernet_cvt13_ade20k', 'mask2former_cvt13_ade20k'])
def test_sizes_of_a_json_config_are_tuples(name, tmp_path):
    """As transforms want them; ``scales`` is a list, of tuples or of numbers."""
    def sizes(cfg: Config) -> dict[str, Any]:
        return {path: value for path, value in values(cfg._cfg_dict.get('train_dataloader'))
                if path.split('.')[-1] in ('scale', 'scales', 'crop_size')}

    cfg = recipe(name)
    cfg.train_dataloader.dataset.shortest = dict(scales=[256, 320])
    cfg.dump(tmp_path / 'a.json')
    assert sizes(cfg) and sizes(read_config(str(tmp_path / 'a.json'))) == sizes(cfg)


def test_data_roots_beside_each_other():
    joined = dict(datasets=[dict(data_root='d/', ann_file='d.json'), dict(data_root='e/f', ann_file='e/f/g.json')])
    cfg = Config(dict(data_root='d/', test_dataloader=dict(dataset=joined)))
    assert redirect_data_root(cfg, 'new') == '.'
    parts = cfg.test_dataloader.dataset.datasets
    assert [part.data_root for part in (cfg, *parts)] == ['new/d/', 'new/d/', 'new/e/f']
    assert [part.ann_file for part in parts] == ['d.json', 'new/e/f/g.json']
    assert redirect_data_root(cfg, 'old') == 'new' and cfg.data_root == 'old/d/'


def test_slices_and_tta_change_the_pipeline_of_every_test_set(tmp_path):
    cfg = recipe('upernet_cvt13_ade20k')
    part = cfg.test_dataloader.dataset
    cfg.test_dataloader.dataset = dict(datasets=[part, dict(part)])
    cfg.dump(tmp_path / 'mine.py')
    tta = dict(config=tmp_path / 'mine.py', checkpoint=tmp_path / 'mine.py', tta=True, check=False)
    parts = datasets_of(read_test(TestRun(**tta)), 'test')
    assert [part.pipeline for part in parts] == [cfg.tta_pipeline] * 2
    with pytest.raises(UserError, match='tta_pipeline'):
        read_test(TestRun(**tta, options=dict(tta_pipeline=None)))
    with DefaultScope.overwrite_default_scope('mmseg'):
        joined = ConcatDataset([BaseDataset(pipeline=part.pipeline, lazy_init=True) for _ in range(2)], lazy_init=True)
        load_whole_images(joined)
    steps = ['LoadImageFromFile', 'LoadAnnotations', 'PackSegInputs']
    assert [[type(step).__name__ for step in leaf.pipeline.transforms] for leaf in joined.datasets] == [steps] * 2


def test_data_root_renames_no_class(tmp_path):
    (tmp_path / 'classes.txt').touch()
    meta = dict(classes=('ship', 'car'), thing_classes=['ship'])
    dataset = dict(data_root='ship', metainfo=meta, others=dict(metainfo=dict(classes='ship/classes.txt')))
    cfg = Config(dict(data_root='ship', test_dataloader=dict(dataset=dataset)))
    redirect_data_root(cfg, str(tmp_path))
    dataset = cfg.test_dataloader.dataset
    assert dataset.data_root == str(tmp_path) and dataset.metainfo == meta
    assert dataset.others.metainfo.classes == f'{tmp_path}/classes.txt'


def test_files_of_names_become_names(tmp_path):
    """Windows writes a byte order mark and other ends of lines; a published config has no path of this machine."""
    (tmp_path / 'names.txt').write_bytes('\ufeffcat\r\ntraffic light\r\n\r\n'.encode())
    option = 'test_dataloader.dataset.metainfo.classes'
    cfg = read_config(str(ROOT / 'configs/upernet_cvt_nano_shapes.py'), {option: str(tmp_path / 'names.txt')})
    assert cfg.test_dataloader.dataset.metainfo.classes == ['cat', 'traffic light']
    with pytest.raises(UserError, match='names.txt'):
        read_config(str(ROOT / 'configs/upernet_cvt_nano_shapes.py'), {option: 'names.txt'})


@pytest.mark.parametrize('line, error', [('classes = (cat, )', "NameError.*'cat'"), ('x = 1', 'has no model')])
def test_a_config_that_is_none(tmp_path, line, error):
    (tmp_path / 'mine.py').write_text(line)
    with pytest.raises(UserError, match=rf'mine\.py.*{error}'):
        read_training(TrainRun(tmp_path / 'mine.py'))
