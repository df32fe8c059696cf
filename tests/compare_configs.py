"""Compares the resolved configs of two checkouts.

    python tests/compare_configs.py OLD_CHECKOUT NEW_CHECKOUT

Every configs/*.py is resolved with its own checkout's files. What differs is printed; the exit code is 1 if a
difference is not in ``EXPECTED``, the table of those that are meant, each with its reason. A restructuring of the
configs is done when only these are left; the table begins empty with the next one.
"""
import argparse
import fnmatch
import sys
from pathlib import Path
from typing import Any

from mmengine.config import Config

# (configs, settings, reason); the first two as fnmatch patterns
EXPECTED: list[tuple[str, str, str]] = [
    ('*', 'optim_wrapper.type', "mixed precision that mmcv's operators bear"),
    ('*', 'backbone.*', 'variable of the size that a recipe takes'),
    ('*', 'channels', 'variable of the size that a recipe takes'),
    ('*', 'multi_scale.*', 'variable of both multi-scale pipelines'),
    ('cvt13_in1k', 'default_scope', 'one scope for all classification recipes'),
    ('cvt21_in1k', 'default_scope', 'one scope for all classification recipes'),
    ('cvt*_in22k', 'default_scope', 'one scope for all classification recipes'),
    ('cvt_nano_cifar10', 'default_scope', 'one scope for all classification recipes'),
    ('cvt_nano_shapes', 'default_hooks.checkpoint.save_best', 'its default (None), said aloud'),
    ('cvt_nano_shapes', 'default_hooks.checkpoint.rule', 'without effect where no best checkpoint is kept'),
    ('cvt13_cifar10*', 'max_epochs', '9,991 steps; they were 9,894 of 10,000'),
    ('cvt13_cifar10*', 'train_cfg.max_epochs', '9,991 steps; they were 9,894 of 10,000'),
    ('cvt13_cifar10*', 'param_scheduler.1.*', '9,991 steps; they were 9,894 of 10,000'),
    ('cvt13_flowers', 'train_dataloader.drop_last', '500 steps; they were 375'),
    ('cvt13_pets', 'max_epochs', '497 steps; they were 490'),
    ('cvt13_pets', 'train_cfg.max_epochs', '497 steps; they were 490'),
    ('cvt13_pets', 'param_scheduler.1.*', '497 steps; they were 490'),
    ('upernet_cvt13_custom', '*train_pipeline*.ignore_index', "the crop's share of a class leaves out ignored pixels"),
    ('upernet_cvt13_custom', 'train_dataloader.dataset.pipeline*.ignore_index', 'as above'),
    ('upernet_cvt13_custom', 'default_hooks.checkpoint.interval', 'checkpoints follow max_iters'),
    ('upernet_cvt13_custom', 'val_interval', 'variable'),
    ('upernet_cvt13_custom', 'warmup', 'variable'),
    ('maskrcnn_cvt13_coco_win', 'model.backbone.attn_cfg*', 'windows in the last stage too: 0.81 of the time'),
    ('*_custom', '*', 'templates with the same lines at their top, from which all else follows'),
    ('*', 'custom_hooks.0.type', 'averages count steps of the optimizer, not iterations'),
    ('*', 'default_hooks.evaluate_loaded.type', 'scores are of the images that were loaded'),
    ('*', 'env_cfg.cudnn_benchmark', 'classification has one image size'),
    ('*', 'log_processor.mean_pattern', "a teacher's accuracy is averaged like losses"),
    ('*', 'warmup_*', 'variable of the schedule'),
    ('*', 'optim_wrapper.loss_scale*', 'bfloat16 needs no loss scaler'),
    ('*_nano_shapes', '*palette*', 'colours are chosen for distance, for these classes as for all'),
    ('*_nano_shapes', '*metainfo', 'as above'),
]


def flatten(value: Any, key: str = '') -> dict[str, str]:
    """Each setting's path and its value as text; the elements of a list have their own."""
    if isinstance(value, dict) and value:
        items = [(f'{key}.{k}'.lstrip('.'), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (dict, list, tuple)) for v in value):
        items = [(f'{key}.{i}', v) for i, v in enumerate(value)]
    else:
        return {key: repr(value)}
    return {k: v for path, inner in items for k, v in flatten(inner, path).items()}


def resolve(checkout: Path) -> dict[str, dict[str, str]]:
    """The settings of every recipe of a checkout, by the recipe's name."""
    files = sorted(path for path in (checkout / 'configs').glob('*.py') if path.stem != 'default_runtime')
    return {path.stem: flatten(Config.fromfile(path)._cfg_dict.to_dict()) for path in files}


def reason(config: str, key: str) -> str | None:
    return next((why for configs, keys, why in EXPECTED
                 if fnmatch.fnmatchcase(config, configs) and fnmatch.fnmatchcase(key, keys)), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('old', type=Path)
    parser.add_argument('new', type=Path)
    args = parser.parse_args()
    old, new = resolve(args.old), resolve(args.new)
    if not old or not new:
        parser.error(f'{args.old if not old else args.new} has no configs/*.py.')
    unexpected = 0
    for config in sorted({*old, *new}):
        before, after = old.get(config), new.get(config)
        if before is None:
            print(f'{config}: new')
            continue
        if after is None:
            why = reason(config, '')
            unexpected += why is None
            print(f'{config}: only in the old checkout  [{why or "NOT EXPECTED"}]')
            continue
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                why = reason(config, key)
                unexpected += why is None
                print(f'{config}: {key}: {before.get(key, "-")} -> {after.get(key, "-")}  [{why or "NOT EXPECTED"}]')
    print(f'{len(old)} and {len(new)} configs, {unexpected} differences that were not expected')
    return int(unexpected > 0)


if __name__ == '__main__':
    sys.exit(main())
