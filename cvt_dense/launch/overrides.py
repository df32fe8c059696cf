"""--cfg-options: each takes effect, or is an error that names what would."""
import ast
import difflib
import inspect
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import mmengine.registry as registries
from mmengine.config import Config
from mmengine.logging import print_log

from ..errors import UserError
from ..nodes import type_name
from .no_transformers import leave_out_transformers

# Names at a config's top that something reads, any other is a variable of the file: the arguments of MMEngine's Runner,
# written down because importing it takes seconds, and what it or we take from the config itself.
RUNNER_ARGUMENTS = {
    'auto_scale_lr', 'custom_hooks', 'data_preprocessor', 'default_hooks', 'default_scope', 'env_cfg',
    'experiment_name', 'launcher', 'load_from', 'log_level', 'log_processor', 'model', 'optim_wrapper',
    'param_scheduler', 'randomness', 'resume', 'test_cfg', 'test_dataloader', 'test_evaluator', 'train_cfg',
    'train_dataloader', 'val_cfg', 'val_dataloader', 'val_evaluator', 'visualizer', 'work_dir'}
SETTINGS = RUNNER_ARGUMENTS | {
    'activation_checkpointing', 'backend_args', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
    'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn', 'tta_model', 'tta_pipeline'}

# Keys that are taken out of a dict before its class is called.
CONSUMED = {'_delete_', '_scope_', 'type', 'priority', 'constructor', 'paramwise_cfg', 'convert_to_iter_based',
            'requires_grad'}
REGISTRIES = [getattr(registries, name) for name in (
    'MODELS', 'DATASETS', 'TRANSFORMS', 'DATA_SAMPLERS', 'HOOKS', 'OPTIMIZERS', 'OPTIM_WRAPPERS', 'PARAM_SCHEDULERS',
    'METRICS', 'LOOPS', 'VISUALIZERS', 'VISBACKENDS', 'LOG_PROCESSORS')]


def read_config(filename: str, options: dict[str, Any] | None = None) -> Config:
    """The config of a file with ``options`` ('a.b.c' -> value) put in.

    A variable at the top of the file, or of one that it inherits from, is set before the file computes from it.

    Raises:
        UserError: there is no such file; a variable that nothing is computed from; a key that does not exist and
            that nothing reads.
    """
    if not os.path.isfile(filename):
        raise UserError(f'config file {filename!r} does not exist.')
    cfg, options = Config.fromfile(filename), options or {}
    variables = {key: value for key, value in options.items() if key in cfg and key not in SETTINGS}
    if variables:
        for key, value in variables.items():
            with _assigned({key: value}):
                alone = Config.fromfile(filename)
            if value != cfg[key] and _settings(alone.to_dict()) == _settings(cfg.to_dict()):
                _report_variable(cfg.to_dict(), [key])
        with _assigned(variables):
            cfg = Config.fromfile(filename)
    before = cfg.to_dict()
    cfg.merge_from_dict(options)
    leave_out_transformers(cfg)  # before keys are judged, which imports what reads them
    for key in sorted(options, key=lambda key: key.split('.')[0] in before):  # first what needs no imports to be judged
        parts = key.split('.')
        if len(parts) > 1 and parts[0] in before and parts[0] not in SETTINGS:
            _report_variable(before, parts)
        _check_key(cfg, before, parts)
    return cfg


# -- variables at a file's top -----------------------------------------------------------------------


@contextmanager
def _assigned(variables: dict[str, Any]) -> Iterator[None]:
    """Lets each config file that is read in here assign ``variables`` where it assigns a value to them itself."""
    original = Config._substitute_predefined_vars  # the first that MMEngine does with a file, in a copy of it

    def substitute(filename: str, temporary: str) -> None:
        original(filename, temporary)
        if filename.endswith('.py'):
            with open(temporary, encoding='utf-8') as file:
                text = file.read()
            with open(temporary, 'w', encoding='utf-8') as file:
                file.write(_assign_too(text, variables))

    Config._substitute_predefined_vars = staticmethod(substitute)
    try:
        yield
    finally:
        Config._substitute_predefined_vars = staticmethod(original)


def _assign_too(text: str, variables: dict[str, Any]) -> str:
    try:
        statements = ast.parse(text).body
    except SyntaxError:  # MMEngine's placeholders for the environment's variables
        return text
    lines = text.encode().split(b'\n')  # ast counts bytes
    for statement in reversed(statements):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            names = {node.id for node in ast.walk(statement)
                     if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            added = ''.join(f'; {name} = {variables[name]!r}' for name in sorted(names & variables.keys()))
            row, column = statement.end_lineno - 1, statement.end_col_offset
            lines[row] = lines[row][:column] + added.encode() + lines[row][column:]
    return b'\n'.join(lines).decode()


def _settings(cfg: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cfg.items() if key in SETTINGS}


def _report_variable(cfg: dict[str, Any], parts: list[str]) -> None:
    """An error with the settings that a variable's value or name stands in; a line in the log if there is none."""
    (name, *rest), given, value = parts, '.'.join(parts), cfg[parts[0]]
    places = [path for path, found in values(_settings(cfg))
              if path.split('.')[-1] == name or (isinstance(value, (dict, list, tuple)) and value and found == value)]
    if not places:
        print_log(f'--cfg-options {given}: no setting is computed from {name!r}; it is set as it is.',
                  logger='current', level=30)
        return
    names = ', '.join('.'.join([path, *rest]) for path in places[:5])
    raise UserError(f'--cfg-options {given}: {name!r} is a variable in the config that nothing reads once the '
                    f'file is computed. Set what takes effect: {names}.')


def values(node: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """(path, value) of everything inside ``node``."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        here = f'{path}.{key}' if path else str(key)
        yield here, child
        if isinstance(child, (dict, list, tuple)):
            yield from values(child, here)


# -- keys that did not exist -------------------------------------------------------------------------


def _check_key(cfg: Config, before: dict[str, Any], parts: list[str]) -> None:
    """Checks the first of ``parts`` that was not in the config, where it is known what is read there."""
    node: Any = before
    parent: Any = cfg  # with all options, as the type may be one of them
    for depth, part in enumerate(parts):
        if isinstance(node, (list, tuple)) and part.isdigit() and int(part) < len(node):
            node, parent = node[int(part)], parent[int(part)]
        elif isinstance(node, dict) and part in node:
            node, parent = node[part], parent[part]
        elif isinstance(node, dict) and isinstance(parent, (dict, Config)):
            known, sure = known_keys(cfg, parent, parts[:depth], node, parent.get(part))
            near = difflib.get_close_matches(part, known, 1, 0.6 if sure else 0.8)
            if part not in known and known and (sure or near):
                where = '.'.join(parts[:depth]) or 'the config'
                meant = ['.'.join([*parts[:depth], *near, *parts[depth + 1:]])] if near else (
                    _settings_named(cfg, before, part) if depth == 0 else [])
                given = '.'.join(parts)
                hint = f'Did you mean {" or ".join(meant)}?' if meant else (
                    f'Known there: {", ".join(sorted(known - CONSUMED))}.')
                raise UserError(f'--cfg-options {given}: {where} has no {part!r}, and nothing reads it. {hint}')
            return
        else:
            return  # a value that is replaced; MMEngine checks indices


def _settings_named(cfg: Config, before: dict[str, Any], name: str) -> list[str]:
    """The first settings of that name inside others, or the model's, if it takes one."""
    found = [path for path, _ in values(_settings(before)) if path.split('.')[-1] == name][:3]
    model = cfg.get('model')
    if not found and isinstance(model, dict) and name in known_keys(cfg, model, ['model'], model, None)[0]:
        found = [f'model.{name}']
    return found


def known_keys(cfg: Config, node: Any, place: list[str], old: dict[str, Any], new: Any) -> tuple[set[str], bool]:
    """Names that may be in ``node``, and whether that is all; none where anything may be."""
    if not place:
        return SETTINGS, True
    if type_name(node):
        return _parameters(_classes(cfg, node))
    from mmengine.optim import OptimWrapper
    from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner, TestLoop, ValLoop
    from torch.utils.data import DataLoader
    top = place[0] if len(place) == 1 else ''
    if top.endswith('_dataloader'):
        return _parameters([DataLoader, Runner.build_dataloader])[0] | {'num_batch_per_epoch'} - {'dataloader'}, True
    if top == 'optim_wrapper':
        return _parameters([OptimWrapper])
    if top == 'train_cfg':
        return _parameters([EpochBasedTrainLoop, IterBasedTrainLoop])[0] | {'by_epoch'}, True
    if top in ('val_cfg', 'test_cfg'):
        return _parameters([ValLoop, TestLoop])
    if top == 'auto_scale_lr':
        return {'base_batch_size', 'enable'}, True
    if top == 'randomness':
        return _parameters([Runner.set_randomness])
    if top == 'default_hooks' and not type_name(new):  # a new one needs a type
        return set(old), True
    return set(), False


def _classes(cfg: Config, node: dict[str, Any]) -> list[Any]:
    """What ``node['type']`` may be, by MMEngine's registries."""
    if not isinstance(node['type'], str):
        return [node['type']]
    import_module('mmengine.optim')  # registers what it has: then MMDetection need not be imported for it
    for registry in (registries.OPTIMIZERS, registries.OPTIM_WRAPPERS, registries.PARAM_SCHEDULERS):
        if node['type'] in registry.module_dict:
            return [registry.module_dict[node['type']]]
    found, scope = [], node['type'].rpartition('.')[0] or cfg.get('default_scope')
    for registry in REGISTRIES:
        with registry.switch_scope_and_registry(scope) as scoped:
            found.append(scoped.get(node['type']))
    return [cls for cls in found if cls is not None]


def _parameters(classes: Iterable[Any]) -> tuple[set[str], bool]:
    """Names of the parameters of any of ``classes``, and whether no other can be given."""
    names, sure = set(CONSUMED), True
    for cls in classes:
        calls = [base.__init__ for base in inspect.getmro(cls) if '__init__' in vars(base)] if inspect.isclass(
            cls) else [cls]
        for call in calls:
            try:
                parameters = inspect.signature(call).parameters
            except ValueError:  # written in C
                return set(), False
            names |= set(parameters) - {'self'}
            if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
                break
            sure = False  # passed on, nobody says where to
    return (names, sure) if classes else (set(), False)
