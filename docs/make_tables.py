"""Write the documentation's tables from the recipes in configs/ and the measurements in benchmarks/."""
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator
from mmengine.config import Config
from scipy.stats import linregress, t

from cvt_dense.engine.curves import new_figure, save_figure

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
    costs = ['parameters (M)', 'MMACs', 'images/s'] if 'gmacs' in members[0] else []  # of a study that measures them
    return markdown(
        ['network', *metrics, *costs],
        [[f'`{member["name"]}`',
          *(', '.join(f'{value:.1f}' for value in member['metrics'][name]['values']) for name in metrics),
          *((f'{member["parameters"] / 1e6:.2f}', f'{member["gmacs"] * 1e3:.0f}', f'{member["images_per_s"]:.0f}')
            if costs else ())]
         for member in ordered])


def data_tables(members: list[dict[str, Any]], picture: Path) -> str:
    """Return top-1 over the fraction of images with fitted power laws, and draw them.

    Args:
        members: members of a study, named ``<network>_<percent of the images>``.
        picture: file to write.
    """
    values: dict[str, dict[int, list[float]]] = {}
    for member in members:
        network, _, percent = member['name'].rpartition('_')
        values.setdefault(network, {})[int(percent)] = member['metrics']['accuracy/top1']['values']
    percents = sorted(next(iter(values.values())))
    figure, axes = new_figure(1, 1)
    rows, fits = [], []
    for network, by_percent in values.items():
        points = [(50 * percent, top1) for percent in percents for top1 in by_percent.get(percent, ())]  # of 5,000
        images, top1 = np.array(points).T
        rows.append([f'`{network}`', *(', '.join(f'{value:.1f}' for value in by_percent.get(percent, ())) or '–'
                                       for percent in percents)])
        axes[0, 0].semilogx(images, top1, 'o', label=network)
        if set(by_percent) != set(percents):
            continue  # too few points for a law
        fit = linregress(np.log(images), np.log(100 - top1))
        half = t.ppf(0.975, len(points) - 2) * fit.stderr
        fits.append([f'`{network}`', f'{-fit.slope:.3f}', f'{-fit.slope - half:.3f} to {-fit.slope + half:.3f}'])
        axes[0, 0].semilogx(images, 100 - np.exp(fit.intercept) * images**fit.slope, ':',
                            color=axes[0, 0].lines[-1].get_color())
    axes[0, 0].set(xlabel='training images', ylabel='top-1 (%)')
    axes[0, 0].legend()
    save_figure(figure, picture)
    return (markdown(['network', *(f'{percent} %' for percent in percents)], rows)
            + '\nThe error falls with the number of images to the power of minus b:\n\n'
            + markdown(['network', 'b', '95 % interval'], fits)
            + f'\n![Top-1 over training images]({picture.name})\n')


def probe_table(trainings: list[dict[str, Any]]) -> str:
    """Return the main figures of benchmarks/probe.py, a column for each network."""
    found: dict[str, list[dict[str, Any]]] = {}
    for measured in trainings:
        for network in dict.fromkeys(row['network'] for row in measured['rows']):
            found.setdefault(network, []).append(
                {row['probe']: row['values'] for row in measured['rows'] if row['network'] == network})

    def cell(figure: Callable[[dict[str, Any]], Any], networks: list[dict[str, Any]]) -> str:
        values = []
        for network in networks:
            with suppress(KeyError):  # a probe that was not made of this training
                values.append(str(figure(network)))
        return ' / '.join(values)

    def squares(which: str, share: str) -> Callable[[dict[str, Any]], str]:
        return lambda values: ', '.join(str(stage[share]) for stage in values['receptive'][which])

    def shifted(kind: str, what: str, part: int = 16) -> Callable[[dict[str, Any]], str]:
        return lambda values: f'{values["shift"][kind][str(values["receptive"]["image"][1] // part)][what]:.1f}'

    def relative(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda values: f'{100 * values["shape"]["relative"][name]:.0f}'

    def aligned(values: dict[str, Any]) -> str:
        rows = next(rows for rows in values['features']['alignment'].values())  # with itself
        return f'{rows[0][-1]:.2f}'

    figures: dict[str, Callable[[dict[str, Any]], Any]] = {
        'top-1 (%)': lambda v: v['calibration']['one pass']['accuracy'],
        'predictions that stay, moved by a 16th of the image, cyclic (%)': shifted('cyclic', 'consistency'),
        'the same, cropped': shifted('cropped', 'consistency'),
        'change of features, moved likewise, cropped (%)': shifted('cropped', 'change of features'),
        'predictions that stay, moved by a quarter, cropped (%)': shifted('cropped', 'consistency', 4),
        'top-1, half of the patches hidden at random': lambda v: v['occlusion']['random']['50'],
        'the most attended half': lambda v: v['occlusion']['most']['50'],
        'the least attended half': lambda v: v['occlusion']['least']['50'],
        'side of the image (pixels)': lambda v: v['receptive']['image'][0],
        'side of the square with half of the gradient, by stage': squares('trained', '50%'),
        'the same, untrained': squares('untrained', '50%'),
        'side of the square with 90 % of the gradient': squares('trained', '90%'),
        'the same, untrained ': squares('untrained', '90%'),
        **{f'of clean top-1, {name} (%)': relative(name) for name in (
            'shuffled 2x2', 'shuffled 4x4', 'shuffled 8x8', 'edges', 'silhouettes', 'low pass', 'high pass')},
        'top-1 under FGSM, 1/255': lambda v: v['attack']['FGSM']['1'],
        'top-1 under PGD, 1/255': lambda v: v['attack']['PGD']['1'],
        'top-1 under PGD, 2/255': lambda v: v['attack']['PGD']['2'],
        '20 neighbours, by stage (%)': lambda v: ', '.join(f'{top1:.0f}' for top1 in v['features']['neighbours']),
        'linear probe, by stage (%)': lambda v: ', '.join(f'{top1:.0f}' for top1 in v['features']['linear']),
        'alignment of the first and the last stage': aligned,
        'calibration error (%)': lambda v: v['calibration']['one pass']['ECE']}
    return markdown(['', *(f'`{network}`' for network in found)],
                    [[name, *(cell(figure, networks) for networks in found.values())]
                     for name, figure in figures.items()])


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
    elif 'reader' in rows[0]:
        names = dict(folders='class folders', list='list file', tar='10 tar files', lmdb='LMDB and list file')
        table = markdown(['', 'workers', 'start-up (s)', 'start-up (MiB)', 'memory (MiB)', 'growth (MiB)'],
                         [[names[row['reader']], row['workers'], row['start_s'], row['start_mib'], row['early_mib'],
                           row['growth_mib']] for row in rows])
    else:
        table = markdown(['', 'seconds', 'memory (GiB)', 'first and last loss'],
                         [[f'`{row["config"]}`', row['seconds'], row['gib'], f'{row["first_loss"]}, {row["last_loss"]}']
                          for row in rows])
    machine = measured.get('environment')
    if machine is None:
        return table
    return (f'{machine["device"]}, {machine["threads"]} threads, PyTorch {machine["torch"]}, '
            f'{", ".join(machine.get("features", []))}:\n\n{table}')


def curve_picture(measured: dict[str, Any], picture: Path) -> str:
    """Draw the time and memory of each network over the size of the image, and return the picture's line.

    Args:
        measured: a run of tools/benchmark.py with several sizes.
        picture: file to write.
    """
    figure, axes = new_figure(1, 2)
    for axis, key, label in zip(axes[0], ('latency_ms', 'memory_gib'), ('ms', 'peak memory, GiB')):
        for name in dict.fromkeys(row['name'] for row in measured['rows']):
            points = [(row['size'][0], row[key]) for row in measured['rows'] if row['name'] == name and row[key]]
            axis.loglog(*zip(*points), marker='o', label=name.replace('eager', measured['settings']['model']))
        ticks = sorted({row['size'][0] for row in measured['rows']})
        axis.set_xticks(ticks, ticks)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter('{x:g}')
        axis.set(xlabel='image height, pixels', ylabel=label)
        axis.grid(alpha=.3)
    axes[0, 0].legend()
    save_figure(figure, picture)
    return f'![Time and memory over the size of the image]({picture.name})\n'


def cpu_table() -> str:
    """Return how many times as fast this project's CvT-13 is as other networks and runtimes, by CPU."""
    cpus = {'Intel Xeon with AMX': 'cpu2', 'AMD EPYC, Zen 4': 'amd2', 'Intel Xeon without AMX': 'cpu3',
            'AMD EPYC, Zen 5': 'amd3'}
    names = {'infer_224_fp32': '8 x 224x224, float32', 'infer_224_bf16': '8 x 224x224, bfloat16',
             'windows_800x1344': '800x1344, float32, windows', 'train_512': 'training step, 2 x 512x512, float32'}
    others = {'infer_224_fp32': ('transformers', 'openvino', 'onnxruntime'), 'infer_224_bf16': ('openvino-bf16',),
              'windows_800x1344': ('convnext_tiny', 'swin_tiny_patch4_window7_224'), 'train_512': ('transformers',)}
    ours = {'windows_800x1344': 'windowed+fused', 'train_512': 'eager'}
    latencies = {}
    for cpu, prefix in cpus.items():
        whole = ROOT / f'benchmarks/{prefix}.json'
        for what in names:
            file = ROOT / f'benchmarks/{prefix}_{what}.json'
            latencies[cpu, what] = json.loads(whole.read_text())[what] if whole.is_file() else {
                row['name']: row['latency_ms'] for row in json.loads(file.read_text())['rows']}
    fused = {cpu: latencies[cpu, 'infer_224_fp32']['fused'] / latencies[cpu, 'infer_224_bf16']['fused'] for cpu in cpus}
    rows = [['8 x 224x224', 'bfloat16 over float32', *(f'{fused[cpu]:.2f}' for cpu in cpus)]]
    for what, title in names.items():
        for other in others[what]:
            times = [latencies[cpu, what] for cpu in cpus]
            rows.append([title, f'`{other}`', *(f'{found[other] / found[ours.get(what, "fused")]:.2f}'
                                                if other in found else '–' for found in times)])
    return markdown(['CvT-13', 'times as fast as', *cpus], rows)


def transfer_table(rows: list[dict[str, Any]]) -> str:
    """Return what the packaged weights give, a value for each seed."""

    def values(row: dict[str, Any], start: str) -> str:
        digits = 3 if row['metric'].startswith('coco/') else 1
        return ', '.join(f'{value:.{digits}f}' for value in row.get(start, ())) or '–'

    names = {'mIoU': 'mIoU', 'coco/bbox_mAP': 'box mAP', 'accuracy/top1': 'top-1'}
    columns = {'weights': 'from the weights', 'scratch': 'from scratch', 'twice': 'from scratch, twice as long',
               'weights_adamw': 'AdamW: from the weights', 'weights_0.2.0': "AdamW: from 0.2.0's weights",
               'scratch_adamw': 'AdamW: from scratch'}
    return markdown(
        ['', 'iterations', '', *columns.values()],
        [[row['title'], row['iterations'], names[row['metric']], *(values(row, start) for start in columns)]
         for row in rows])


def feature_table(probes: list[dict[str, Any]]) -> str:
    """Return the accuracies of features that were not trained further, a value for each seed of random weights."""
    rows = []
    for size in sorted({probe['size'] for probe in probes}):
        for method, title in (('knn', '20 nearest neighbours'), ('linear', 'linear probe')):
            rows.append([f'{title}, {size} pixels', *(
                ', '.join(f'{probe[method]:.1f}' for probe in probes
                          if probe['size'] == size and probe['checkpoint'] == checkpoint) or '–'
                for checkpoint in ('cvt_dense://cvt-nano', '0.2.0', 'scratch'))])
    return markdown(['top-1 on CIFAR-10', 'the weights', "0.2.0's weights", 'random weights'], rows)


def large_images_table(rows: list[dict[str, Any]]) -> str:
    """Return time, memory and accuracy of ways to predict large images; of detectors the objects across seams."""
    rows = sorted((row for row in rows if 'failed' not in row), key=lambda row: row['side'])
    seams = [f'{key} of those across seams' for key in ('found', 'doubled', 'cut')]
    scores = ['mIoU'] if 'mIoU' in rows[0] else ['AP', 'AP50', *seams]
    lines = []
    for row in rows:
        across = row.get('across_seams', {})
        counts = {name: f'{across[key]} of {across["objects"]}' for name, key in zip(seams, ('found', 'doubled', 'cut'))
                  if across}
        lines.append([f'{row["side"]:,}', row['way'], f'{row["seconds"]:.1f}', f'{row["gib"]:.2f}',
                      *({**row, **counts}[name] for name in scores)])
    return markdown(['pixels', '', 'seconds', 'memory (GiB)', *scores], lines)


def first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the top of a config."""
    comment = itertools.takewhile(lambda line: line.startswith('# '), path.read_text().splitlines())
    text = ' '.join(line.removeprefix('# ').strip() for line in comment)
    return re.split(r'\.( |$)', text)[0].replace('|', '/').replace('<', '\\<')


def recipes_table() -> str:
    """Return one table for each task with what every recipe trains."""
    rows: dict[str, list[list[Any]]] = {task: [] for task in TASKS}
    for path in sorted((ROOT / 'configs').glob('*.py')):
        cfg = Config.fromfile(path)
        scope = cfg.get('default_scope')
        task = {'mmdet': 'detection', 'mmseg': 'segmentation'}.get(scope, 'classification')
        description = first_sentence(path)
        if cfg.get('train_dataloader') is None or description.startswith('Tests '):
            length = learning_rate = batch = '–'  # evaluation only
        else:
            loop = cfg.train_cfg
            length = f'{loop.max_epochs} epochs' if loop.get('max_epochs') else f'{loop.max_iters} iterations'
            learning_rate = f'{cfg.optim_wrapper.optimizer.lr:g}'
            batch = cfg.get('auto_scale_lr', {}).get('base_batch_size', '–')
        rows[task].append([f'`{path.stem}`', description, length, learning_rate, batch])
    return '\n'.join(
        f'## {title}\n\n' + markdown(['recipe', 'description', 'length', 'learning rate', 'batch'], rows[task])
        for task, title in TASKS.items())


def write_all(folder: Path) -> None:
    """Write all tables into ``folder``."""
    folder.mkdir(exist_ok=True)
    probes = [json.loads(path.read_text()) for path in sorted((ROOT / 'benchmarks').glob('probes_cifar*.json'))]
    tables = {'recipes': recipes_table(), 'cpus': cpu_table(), 'probes_cifar': probe_table(probes)}
    for path in sorted((ROOT / 'benchmarks').glob('*.json')):
        content = json.loads(path.read_text())
        if path.stem.startswith('study_cifar_data'):
            tables[path.stem] = data_tables(content, folder / f'{path.stem}.png')
        elif path.stem.startswith('study_'):
            tables[path.stem] = study_table(content)
        elif isinstance(content, dict) and 'transfer' in content:
            tables |= {path.stem: transfer_table(content['transfer']),
                       f'{path.stem}_probes': feature_table(content['probes'])}
        elif path.stem == 'large_images':
            for task in sorted({row['task'] for row in content}):
                tables[f'{path.stem}_{task}'] = large_images_table([row for row in content if row['task'] == task])
        elif '_curve_' in path.stem:
            tables[path.stem] = curve_picture(content, folder / f'{path.stem}.png')
        elif isinstance(content, dict) and {
                'latency_ms', 'whole_ms', 'first_loss', 'reader'} & set(content.get('rows', [{}])[0]):
            tables[path.stem] = benchmark_table(content)
    for name, table in tables.items():
        (folder / f'{name}.md').write_text(table)


if __name__ == '__main__':
    write_all(Path(__file__).parent / 'generated')
