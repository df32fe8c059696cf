"""Write the generated parts of the pages: tables of recipes and measurements, and the reference from docstrings.

    python docs/make_tables.py

A page has each of them between the lines ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.
"""
import inspect
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mmengine.config import Config

from cvt_dense.config import dicts

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / 'README.md', ROOT / 'configs/README.md', ROOT / 'tools/README.md', *sorted(
    page for page in (ROOT / 'docs').rglob('*.md') if page.parent.name not in ('generated', '_build'))]
BLOCK = re.compile(r'(<!-- begin ([\w-]+) -->\n)(.*?)(<!-- end \2 -->)', re.S)
TASKS = {'mmdet': 'Detection', 'mmseg': 'Segmentation'}  # by default_scope
COMMANDS = {'Train and test': ('train', 'test', 'predict'), 'Data and mistakes': ('diagnose', 'convert_data'),
            'Deploy': ('publish', 'export', 'convert_checkpoint')}
API = {'cvt_dense': 'Functions', 'cvt_dense.launch.runs': 'Settings of runs',
       'cvt_dense.models.timm_backbone': "timm's networks", 'cvt_dense.engine': 'Parts of a training'}
NAMES = {'cvt_dense': ('train', 'test', 'load', 'predict', 'export'),  # which it imports when they are used
         'cvt_dense.launch.runs': ('TrainRun', 'TestRun')}


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    return ''.join('| ' + ' | '.join(map(str, line)) + ' |\n' for line in (header, ['---'] * len(header), *rows))


# -- recipes and measurements ---------------------------------------------------------------------------------


def mm_config() -> str:
    """Return the config of the README."""
    return next(text for _, name, text, _ in BLOCK.findall((ROOT / 'README.md').read_text()) if name == 'mm-config')


def first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the top of a config."""
    comment = itertools.takewhile(lambda line: line.startswith('# '), path.read_text().splitlines())
    text = ' '.join(line.removeprefix('# ').strip() for line in comment)
    return re.split(r'\.( |$)', text)[0].replace('|', '/').replace('<', '\\<')


def image_size(cfg: Config) -> str:
    """Return the side of a classifier's images, the short side of a detector's, or the crop of a segmentor's."""
    values = {key: value for step in reversed([*dicts(cfg.train_dataloader.dataset)]) for key, value in step.items()}
    if 'scales' in values:
        sides = [min(scale) for scale in values['scales']]
        return f'{min(sides)}–{max(sides)}'
    size = values.get('input_size') or values.get('crop_size') or min(values.get('scale', ['as stored']))
    return 'x'.join(map(str, size)) if isinstance(size, (list, tuple)) else str(size)


def recipe_row(path: Path, cfg: Config) -> list[Any]:
    """Return what a recipe trains, how long, and the number of images that its learning rate is for."""
    name, description = f'`{path.stem}`', first_sentence(path)
    if cfg.get('train_dataloader') is None or description.startswith('Tests '):
        return [name, description, *'––––––']  # evaluation only
    loop, batch = cfg.train_cfg, cfg.train_dataloader.batch_size
    length = f'{loop.max_epochs} epochs' if loop.get('max_epochs') else f'{loop.max_iters:,} iterations'
    total = cfg.get('auto_scale_lr', {}).get('base_batch_size')
    steps = cfg.optim_wrapper.get('accumulative_counts', 1)
    return [name, description, image_size(cfg), length, f'{cfg.optim_wrapper.optimizer.lr:g}', total or '–', batch,
            f'{total / batch / steps:g}' if total else '–']


def recipes() -> str:
    """Return one table for each task with what every recipe trains."""
    rows: dict[str, list[list[Any]]] = {'Classification and pretraining': [], 'Detection': [], 'Segmentation': []}
    for path in sorted((ROOT / 'configs').glob('*.py')):
        cfg = Config.fromfile(path)
        task = TASKS.get(cfg.get('default_scope'), 'Classification and pretraining')
        rows[task].append(recipe_row(path, cfg))
    header = ['recipe', 'description', 'image size', 'length', 'learning rate', 'for images per step', 'images per GPU',
              'GPUs']
    return '\n'.join(f'## {title}\n\n' + table(header, rows[title]) for title in rows)


def speed() -> str:
    """Return the milliseconds and the memory of benchmarks/speed.json, a column for each machine."""
    rows = json.loads((ROOT / 'benchmarks/speed.json').read_text())['rows']
    machines = list(dict.fromkeys(row['machine'] for row in rows))
    networks: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        networks.setdefault((row['workload'], row['network']), {})[row['machine']] = row
    return table(
        ['', '', *(f'{machine}, ms' for machine in machines), 'GiB'],
        [[*key, *(f'{found[machine]["ms"]:.0f}' if machine in found else '–' for machine in machines),
          f'{next(iter(found.values()))["gib"]:.2f}'] for key, found in networks.items()])


NETWORKS = {'nano_weights': "CvT-nano, this package's weights", 'nano_random': 'CvT-nano, random weights',
            'resnet18': 'ResNet-18, random weights', 'mobilenetv3_small': 'MobileNetV3-Small, random weights',
            'convnext_atto': 'ConvNeXt-Atto, random weights', 'pvt_v2_b0': 'PVTv2-B0, random weights',
            'lite2_weights': 'EfficientNet-Lite2, its published weights (all of ImageNet)'}


def equal_minutes() -> str:
    """Return the scores of benchmarks/equal_minutes.json, of both seeds."""
    result = json.loads((ROOT / 'benchmarks/equal_minutes.json').read_text())
    tasks = {'blood_cells': 100, 'camvid_small': 1, 'cifar10_small': 1}
    cells = {(row['network'], row['task']): ', '.join(f'{score * tasks[row["task"]]:.1f}' for score in row['scores'])
             for row in result['rows']}
    rows = [[title, *(cells.get((network, task), '–') for task in tasks),
             *(f'{score:.1f}' for score in result['frozen'][network].values()),
             f'{result["parameters"][network]:.1f}', f'{result["milliseconds"][network]:.0f}']
            for network, title in NETWORKS.items() if (network, 'blood_cells') in cells]
    return table(['', 'blood cells: box mAP, 3 minutes', 'CamVid: mIoU, 2 minutes', '5,000 images of CIFAR-10: top-1, '
                  '1 minute', '20-NN on frozen features of the same', 'linear probe on the same', 'M parameters',
                  'ms, 224x298, 1 thread'], rows)


def argument(name: str, meaning: str) -> str:
    """Return a line of a Markdown list."""
    return f'- `{name}`' + (f': {meaning}' if meaning else '').replace('<', '\\<')


# -- reference ------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return the text of a docstring as Markdown on one line."""
    text = re.sub(r':\w+:`~?(?:[\w.]*\.)?(\w+)`', r'`\1`', text)
    return ' '.join(re.sub('``(.+?)``', r'`\1`', text.replace('::', ':')).split())


def sections(documented: Any) -> dict[str, str]:
    """Return a docstring by its sections, the text before them under ''."""
    parts = re.split(r'^(Args|Attributes|Returns|Raises|Shapes|Samples|Yields):[ \n]', inspect.getdoc(documented) or '',
                     flags=re.M)
    return {'': parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def arguments(documented: Any) -> Iterator[str]:
    """Yield a line of a Markdown list for each argument that a docstring describes."""
    text = inspect.cleandoc(sections(documented).get('Args', ''))
    for name, meaning in re.findall(r'^\**(\w[\w, ]*): (.*?)(?=^[*\w]|\Z)', text, re.M | re.S):
        if name not in ('kwargs', 'embed_dims', 'num_heads', 'norm_layer'):  # a config does not give these
            meaning, *choices = re.split(r'\n\s*- ', meaning)
            yield argument(name, plain(meaning))
            yield from (f'  - {plain(choice)}' for choice in choices)


def described(name: str, documented: Any) -> str:
    """Return an entry of a list: the text before the arguments, and the list of these."""
    text = ' '.join(plain(part) for part in sections(documented)[''].split('\n\n') if not part.startswith('    '))
    return '\n  '.join([f'- **`{name}`**: {text}', *arguments(documented)]) + '\n'


def backbone() -> str:
    """Return the arguments of the backbone, and the shapes of what it takes and returns."""
    from cvt_dense import CvT
    about = sections(CvT)
    return '\n'.join([plain(about[''].split('\n\n')[1]), '', *arguments(CvT), '', plain(about['Shapes'])]) + '\n'


def attention() -> str:
    """Return the description of every type of attention and its arguments."""
    names = {'attention': ['ConvAttention'], 'variants': ['WindowedAttention']}
    return ''.join(described(f'cvt_dense.{name}', getattr(import_module(f'cvt_dense.models.{module}'), name))
                   for module in names for name in names[module])


def call(member: Any) -> str:
    """Return the parameters of a function or class, with their defaults where these are short."""
    parameters = inspect.signature(member).parameters.values()
    return '(' + ', '.join(
        f'{each.name}={each.default!r}' if isinstance(each.default, bool | int | float | str | None) else each.name
        for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)) + ')'


def api() -> str:
    """Return the public functions and classes of the package, with the first sentence of their description."""
    lines = []
    for module, title in API.items():
        lines += [f'## {title}', '']
        package = import_module(module)
        members = {name: getattr(package, name) for name in NAMES.get(module, ()) if hasattr(package, name)} or {
            name: member for name, member in vars(package).items()
            if getattr(member, '__module__', '').startswith(module) and not name.startswith('_')}
        for name, member in members.items():
            summary = plain(sections(member)[''].split('\n\n')[0])
            lines.append(f'- `{module}.{name}{call(member)}`: {summary}')
            if module != 'cvt_dense.engine':
                lines += [f'  {line}' for line in arguments(member)]
        lines.append('')
    return '\n'.join(lines)


def flags(command: str) -> dict[str, str]:
    """Return the meaning of every argument of a command, as its --help has it, by the argument's name."""
    with patch.dict(os.environ, COLUMNS='10000'):  # argparse's width of lines
        text = import_module(f'cvt_dense.cli.{command}').build_parser().format_help()
    found = re.findall(r'^  ([^\s{]\S*(?: \S+)*)(?:\s+(\S.*))?$', text, re.M)
    return {name: meaning for name, meaning in found if not name.startswith('-h')}


def commands() -> str:
    """Return the flags of every command; those that several commands have stand at the top only."""
    by_command = {command: flags(command) for names in COMMANDS.values() for command in names}
    shared = Counter(pair for found in by_command.values() for pair in found.items())
    common = {name: text for (name, text), count in shared.items() if count > 1}
    lines = ['Several commands have these arguments:', '', *map(argument, common, common.values())]
    for title, names in COMMANDS.items():
        lines += ['', f'## {title}', '']
        for command in names:
            own = {name: text for name, text in by_command[command].items()
                   if text != common.get(name)}
            also = ', '.join(f'`{name.split()[0]}`' for name in by_command[command] if name not in own)
            about = plain(inspect.getdoc(import_module(f'cvt_dense.cli.{command}')).split('\n\n')[0])
            lines.append(f'- **{command}.py** {about}' + (f' Arguments: {also}' if also else ''))
            lines += [f'  {argument(name, text)}' for name, text in own.items()]
    return '\n'.join(lines) + '\n'


# -- pages ----------------------------------------------------------------------------------------------------

PARTS = {'mm-config': mm_config, 'recipes': recipes, 'speed': speed, 'equal-minutes': equal_minutes,
         'backbone': backbone, 'attention': attention, 'api': api, 'commands': commands}


def filled(text: str) -> str:
    """Return the text of a page with its generated parts as they have to be."""
    return BLOCK.sub(lambda part: part[1] + PARTS[part[2]]() + part[4], text)


if __name__ == '__main__':
    for page in PAGES:
        text = page.read_text()
        if text != (new := filled(text)):
            page.write_text(new)
            print(f'{page.relative_to(ROOT)} changed')
