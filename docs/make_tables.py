"""Write the documentation's tables from the recipes in configs/ and the measurements in benchmarks/."""
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

ROOT = Path(__file__).resolve().parents[1]
STUDY_METRICS = ('accuracy/top1', 'mIoU', 'coco/bbox_mAP', 'coco/segm_mAP')
TASKS = dict(classification='Classification and pretraining', detection='Detection', segmentation='Segmentation')


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ['---'] * len(header), *rows]
    return '\n'.join('| ' + ' | '.join(map(str, line)) + ' |' for line in lines) + '\n'


def study_table(members: list[dict[str, Any]]) -> str:
    """Return accuracy beside cost of a study's members, best first."""
    metrics = [name for name in STUDY_METRICS if any(name in member['metrics'] for member in members)]
    ordered = sorted(members, key=lambda member: -member['metrics'][metrics[0]]['mean'])
    return markdown(
        ['network', *metrics, 'parameters (M)', 'MMACs', 'images/s'],
        [[f'`{member["name"]}`',
          *(', '.join(f'{value:.1f}' for value in member['metrics'][name]['values']) for name in metrics),
          f'{member["parameters"] / 1e6:.2f}', f'{member["gmacs"] * 1e3:.0f}', f'{member["images_per_s"]:.0f}']
         for member in ordered])


def benchmark_table(measured: dict[str, Any]) -> str:
    """Return the rows of one run of tools/benchmark.py with the machine that it ran on."""
    rows = measured['rows']
    if 'latency_ms' in rows[0]:
        table = markdown(['', 'ms', 'times as fast', 'memory (GiB)'],
                         [[f'`{row["name"]}`', f'{row["latency_ms"]:.0f}', f'{row["speedup"]:.2f}',
                           f'{row["memory_gib"]:.2f}'] for row in rows])
    elif 'whole_ms' in rows[0]:
        parts = ('whole', 'backbone', 'neck', 'heads', 'post')
        table = markdown(['', *parts], [
            [f'`{Path(row["config"]).stem}`', *(f'{row[f"{part}_ms"]:.0f}' for part in parts)] for row in rows])
    else:
        table = markdown(['', 'seconds', 'memory (GiB)', 'first and last loss'],
                         [[f'`{row["config"]}`', row['seconds'], row['gib'], f'{row["first_loss"]}, {row["last_loss"]}']
                          for row in rows])
    machine = measured.get('environment')
    if machine is None:
        return table
    return (f'{machine["device"]}, {machine["threads"]} threads, PyTorch {machine["torch"]}, '
            f'{", ".join(machine.get("features", []))}:\n\n{table}')


def first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the top of a config."""
    comment = itertools.takewhile(lambda line: line.startswith('# '), path.read_text().splitlines())
    text = ' '.join(line.removeprefix('# ').strip() for line in comment)
    return re.split(r'\.( |$)', text)[0].replace('|', '/')


def recipes_table() -> str:
    """Return one table for each task with what every recipe trains."""
    rows: dict[str, list[list[Any]]] = {task: [] for task in TASKS}
    for path in sorted((ROOT / 'configs').glob('*.py')):
        cfg = Config.fromfile(path)
        scope = cfg.get('default_scope')
        task = {'mmdet': 'detection', 'mmseg': 'segmentation'}.get(scope, 'classification')
        if 'optim_wrapper' not in cfg or cfg.get('train_dataloader') is None:
            length = learning_rate = batch = '–'  # evaluation only
        else:
            loop = cfg.train_cfg
            length = f'{loop.max_epochs} epochs' if loop.get('max_epochs') else f'{loop.max_iters} iterations'
            learning_rate = f'{cfg.optim_wrapper.optimizer.lr:g}'
            batch = cfg.get('auto_scale_lr', {}).get('base_batch_size', '–')
        rows[task].append([f'`{path.stem}`', first_sentence(path), length, learning_rate, batch])
    return '\n'.join(
        f'## {title}\n\n' + markdown(['recipe', '', 'length', 'learning rate', 'for a total batch of'], rows[task])
        for task, title in TASKS.items())


def write_all(folder: Path) -> None:
    """Write all tables into ``folder``."""
    folder.mkdir(exist_ok=True)
    tables = {'recipes': recipes_table()}
    for path in sorted((ROOT / 'benchmarks').glob('*.json')):
        content = json.loads(path.read_text())
        if path.stem.startswith('study_'):
            tables[path.stem] = study_table(content)
        elif isinstance(content, dict) and {'latency_ms', 'whole_ms', 'first_loss'} & set(content.get('rows', [{}])[0]):
            tables[path.stem] = benchmark_table(content)
    for name, table in tables.items():
        (folder / f'{name}.md').write_text(table)


if __name__ == '__main__':
    write_all(Path(__file__).parent / 'generated')
