"""Parse ``--cfg-options KEY=VALUE``."""
import argparse
from collections.abc import Sequence
from typing import Any

from mmengine.config import DictAction


class OptionsAction(DictAction):
    """argparse's action of ``--cfg-options``; see :func:`parse_value`."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Sequence[str],
                 option_string: str | None = None) -> None:
        options = dict(getattr(namespace, self.dest, None) or {})
        for value in values:
            key, equals, text = value.partition('=')
            if not equals:
                parser.error(f'argument {option_string}: {value!r} is not KEY=VALUE')
            if text.startswith(('{', 'dict(')):
                parser.error(f'argument {option_string}: give each setting of {key} by itself, as {key}.NAME=VALUE')
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
