"""Parse ``--cfg-options KEY=VALUE``, and reject options without effect."""
import argparse
import ast
import difflib
import inspect
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config, DictAction

from ..errors import UserError
from .settings import values

# Keys that MMEngine and this package read from a config besides the arguments of MMEngine's Runner.
READ_FROM_CONFIG = {
    'activation_checkpointing', 'backend_args', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
    'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn', 'tta_model', 'tta_pipeline'}


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
    """Return the value of the text after KEY=.

    Literals of Python are read as such, ``true`` and ``false`` too, and the members of lists and tuples in brackets
    one by one, so that ``[cat,(traffic light,dog)]`` needs no quotes. Everything else is a string, as it was typed;
    MMEngine's reader would remove its spaces.
    """
    if text in ('true', 'false'):
        return text == 'true'
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if text[:1] + text[-1:] != '[]' and (text[:1] + text[-1:] != '()' or ',' not in text):
            return text
    parts = ['']
    for part in text[1:-1].split(','):
        inside = any(parts[-1].count(pair[0]) > parts[-1].count(pair[1]) for pair in ('()', '[]'))
        parts[-1:] = [f'{parts[-1]},{part}'] if inside else [parts[-1], part]
    return (list if text[0] == '[' else tuple)(parse_value(part.strip()) for part in parts[1:])


def merge_options(cfg: Config, options: dict[str, Any]) -> None:
    """Merge options into ``cfg`` as ``Config.merge_from_dict`` does.

    Raises:
        UserError: an option has no effect, because its name is misspelt, or because it is a variable from which the
            config file has already computed other settings.
    """
    settings = cfg.to_dict()
    for option in options:
        _check_option(settings, option)
    cfg.merge_from_dict(options)


def _check_option(cfg: dict[str, Any], option: str) -> None:
    from mmengine.runner import Runner
    top, *rest = option.split('.')
    read = READ_FROM_CONFIG | set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'}
    if top not in read:
        settings = values({key: value for key, value in cfg.items() if key in read})
        near = difflib.get_close_matches(top, read, 1, 0.7) or [
            path for path, _ in settings if path.split('.')[-1] == top][:5]
        meant = ' or '.join('.'.join([name, *rest]) for name in near)
        text = f'nothing reads {top!r}' if top not in cfg else (
            f'{top!r} is a variable, from which the config file has computed settings already: edit the file')
        raise UserError(f'--cfg-options {option}: {text}.{f" Did you mean {meant}?" * bool(near)}')
