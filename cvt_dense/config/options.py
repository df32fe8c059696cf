"""Parse ``--cfg-options KEY=VALUE``, and reject settings without effect."""
import argparse
import difflib
import inspect
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config, DictAction

from ..errors import UserError
from .walk import values

# Keys that MMEngine and this package read from a config besides the arguments of MMEngine's Runner.
READ_FROM_CONFIG = {
    'activation_checkpointing', 'backend_args', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
    'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn', 'tta_model', 'tta_pipeline'}
# Keys of the dicts in which MMEngine ignores others without an error; of paramwise_cfg without a constructor.
READ_BELOW = {
    'auto_scale_lr': {'enable', 'base_batch_size'},
    'env_cfg': {'cudnn_benchmark', 'dist_cfg', 'mp_cfg', 'resource_limit'},
    'paramwise_cfg': {'bias_decay_mult', 'bias_lr_mult', 'bypass_duplicate', 'custom_keys', 'dcn_offset_lr_mult',
                      'dwconv_decay_mult', 'flat_decay_mult', 'norm_decay_mult'}}
VARIABLE = 'a variable, from which other settings are computed already: edit the file that computes them'


class OptionsAction(DictAction):
    """argparse's action of ``--cfg-options``; see :func:`parse_value`."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Sequence[str],
                 option_string: str | None = None) -> None:
        options = dict(getattr(namespace, self.dest, None) or {})
        for value in values:
            key, equals, text = value.partition('=')
            if not equals:
                parser.error(f'argument {option_string}: {value!r} is not KEY=VALUE')
            options[key] = parse_value(text)
        setattr(namespace, self.dest, options)


def parse_value(text: str) -> Any:
    """Return the value of the text after KEY=, as MMEngine's ``DictAction`` reads it.

    Unlike there, names keep their spaces, and what stands in quotes is one name, with its commas.
    """
    text, parts = text.strip(), _split(text.strip())
    if len(parts) > 1:
        return [parse_value(part) for part in parts if part]
    if text[:1] + text[-1:] in ('()', '[]'):
        return (list if text[0] == '[' else tuple)(parse_value(part) for part in _split(text[1:-1]) if part)
    if len(text) > 1 and text[0] == text[-1] and text[0] in '\'"':
        return text[1:-1]
    return DictAction._parse_int_float_bool(text)


def _split(text: str) -> list[str]:
    """Split at the commas outside of quotes and brackets."""
    parts, quote, depth = [''], '', 0
    for letter in text:
        if letter == quote or not quote and letter in '\'"' and not parts[-1].strip(' (['):  # not an apostrophe
            quote = '' if quote else letter
        depth += 0 if quote else (letter in '([') - (letter in ')]')
        if letter == ',' and not quote and not depth:
            parts.append('')
        else:
            parts[-1] += letter
    return parts


def merge_options(cfg: Config, options: dict[str, Any]) -> None:
    """Merge options into ``cfg`` as ``Config.merge_from_dict`` does.

    Raises:
        UserError: an option, or a setting of the file, has no effect, because its name is misspelt, or because it is a
            variable from which the config file has already computed other settings.
    """
    settings = cfg.to_dict()
    for option in options:
        _check_option(settings, option)
    cfg.merge_from_dict(options)
    wrapper = cfg.get('optim_wrapper') or {}
    for name, known in READ_BELOW.items():
        node = cfg.get(name) or (not wrapper.get('constructor') and wrapper.get(name)) or {}
        if unknown := sorted(node.keys() - known):
            raise UserError(f'nothing reads {name}.{unknown[0]}; allowed are {sorted(known)}.')


def read_names() -> set[str]:
    """Return the names of the settings that something reads from a config."""
    from mmengine.runner import Runner  # imports PyTorch
    return READ_FROM_CONFIG | set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'}


def _check_option(cfg: dict[str, Any], option: str) -> None:
    top, *rest = option.split('.')
    read = read_names()
    if top not in read:
        settings = values({key: value for key, value in cfg.items() if key in read})
        near = difflib.get_close_matches(top, read, 1, 0.7) or [
            path for path, _ in settings if path.split('.')[-1] == top][:5]
        meant = ' or '.join('.'.join([name, *rest]) for name in near)
        text = f'{top!r} is {VARIABLE}' if top in cfg else f'nothing reads {top!r}'
        raise UserError(f'--cfg-options {option}: {text}.{f" Did you mean {meant}?" * bool(near)}')
