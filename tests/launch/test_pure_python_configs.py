"""Configs whose types are classes, as MMEngine's pure-Python ones have them, are read, checked and run like others."""
from importlib import import_module

import pytest
from load_tool import ROOT, run_tool
from mmengine.config import Config
from mmengine.registry import Registry
from tiny_training import differences

from cvt_dense.engine.checkpoint import find_checkpoint

pytestmark = pytest.mark.slow


def pure_python(cfg):
    """Return the text of the same config with classes in the place of their names, and without a default scope."""
    classes, imports = {}, {}
    for package in ('mmengine', cfg.default_scope, 'cvt_dense'):  # the last two have types of mmengine's names
        for registry in vars(import_module(f'{package}.registry')).values():
            if isinstance(registry, Registry):
                registry.import_from_location()
                classes.update(registry.module_dict)

    def write(value, key=None):
        kind = classes.get(value.split('.')[-1]) if key == 'type' and not str(value).startswith('timm.') else None
        if kind is not None:
            alias = f'{kind.__module__}.{kind.__name__}'.replace('.', '_')
            imports[alias] = f'from {kind.__module__} import {kind.__name__} as {alias}'
            return alias
        if isinstance(value, dict):
            return f'{{{", ".join(f"{name!r}: {write(child, name)}" for name, child in value.items())}}}'
        if isinstance(value, list | tuple):
            return f'{type(value).__name__}([{", ".join(map(write, value))}])'
        return repr(value)

    lines = [f'{key} = {write(value)}' for key, value in cfg.to_dict().items() if key != 'default_scope']
    return '\n'.join([*imports.values(), 'default_scope = None', *lines])


@pytest.mark.parametrize('task, name', [('classification', 'cvt'), ('detection', 'maskrcnn_cvt')])
def test_tools_take_a_config_of_classes_without_a_scope(tmp_path, shapes, task, name):
    """Each tool that asks for a config's types runs for one task."""
    cfg = Config.fromfile(ROOT / f'configs/{name}_nano_shapes.py')
    cfg.train_cfg.update(dict(max_epochs=1) if task == 'classification' else dict(max_iters=2, val_interval=2))
    cfg.train_dataloader.batch_size = 2
    config, run, data = tmp_path / 'pure.py', tmp_path / 'run', ('--data-root', shapes / task)
    config.write_text(pure_python(cfg))
    run_tool('train', config, '--work-dir', run, *data)
    made = config, find_checkpoint(run)
    if task == 'classification':
        run_tool('train', run / 'pure.py', '--work-dir', tmp_path / 'again', *data, '--no-check')  # from its dump
        assert not differences(made[1], tmp_path / 'again/epoch_1.pth')
        run_tool('test', *made, '--work-dir', tmp_path / 'test', *data)
    else:
        run_tool('publish', *made, tmp_path / 'published', '--license', 'mit', '--no-test', *data)
        image = next((shapes / task).glob('val/*.png'))
        run_tool('predict', tmp_path / 'published', image, '--out-dir', tmp_path / 'drawn')
        run_tool('export', *made, tmp_path / 'backbone.pt2', '--part', 'backbone', '--size', '64x64', *data)
        run_tool('test', *made, '--work-dir', tmp_path / 'test', *data, '--slice', 64)
