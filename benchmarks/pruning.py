"""Measures a trained network's metric and time with fewer and fewer tokens: docs/results/pruning.md.

    python benchmarks/pruning.py CONFIG CHECKPOINT --size 128x128 --work-dir work_dirs/pruning

Each fraction of ``--keep`` with each of ``--scores`` is tested by tools/test.py, with ``--finetune`` after a
training by tools/train.py that starts from the checkpoint. The backbone's times at the size that the config tests with
are medians of rounds in which all variants take turns. The same command continues an interrupted comparison.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tools')]

import torch
from _benchmark.measure import seconds
from _benchmark.report import environment
from _random_batch import build_model, parse_size
from _study import record_settings

from cvt_dense.curves import MAIN, new_figure, save_figure
from cvt_dense.launch import command_line
from cvt_dense.models.variants.pruned import SCORES


def parse_args() -> argparse.Namespace:
    """Return the checked arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', type=Path, help='config file')
    parser.add_argument('checkpoint', type=Path, help='checkpoint file')
    parser.add_argument('--size', type=parse_size, metavar='HxW', required=True,
                        help='image whose time is measured: the size that the config tests with')
    parser.add_argument('--keep', type=lambda text: [float(part) for part in text.split(',')], metavar='FRACTION,...',
                        default=[0.9, 0.7, 0.5, 0.3], help='fractions of the tokens (0.9,0.7,0.5,0.3), besides 1')
    parser.add_argument('--scores', type=lambda text: text.split(','), default=list(SCORES), metavar='NAME,...',
                        help=f'scores that choose the tokens ({",".join(SCORES)})')
    parser.add_argument('--refresh', type=int, default=4, help='blocks until tokens are chosen again (4)')
    parser.add_argument('--finetune', nargs='+', metavar='KEY=VALUE',
                        help='train each first, with these settings, e.g. train_cfg.max_iters=100')
    parser.add_argument('--data-root', metavar='DIR', help='as for tools/train.py')
    parser.add_argument('--batch', type=int, default=1, help='images whose time is measured (1)')
    parser.add_argument('--rounds', type=int, default=9, help='timed rounds (9)')
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu')
    parser.add_argument('--work-dir', type=Path, required=True, metavar='DIR', help='folder of all runs and of the '
                        'results: pruning.json and pruning.png')
    args = parser.parse_args()
    if not all(0 < keep <= 1 for keep in args.keep) or set(args.scores) - set(SCORES):
        parser.error(f'--keep {args.keep} --scores {args.scores}: allowed are fractions up to 1, and {SCORES}')
    return args


def write_config(pruning: dict, args: argparse.Namespace, folder: Path) -> Path:
    """Write a config that starts from the checkpoint with pruned tokens, and return its path.

    Args:
        pruning: settings of the backbone; empty ones prune nothing.
        args: command line, for config and checkpoint.
        folder: folder of the config, which takes the folder's name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f'{folder.name}.py'
    path.write_text(f'_base_ = {str(args.config.resolve())!r}\n'
                    f'model = dict(backbone=dict(init_cfg=None, **{pruning!r}))\n'
                    f'load_from = {str(args.checkpoint.resolve())!r}\n')
    return path


def metrics_of(config: Path, args: argparse.Namespace) -> dict[str, float]:
    """Return the metrics of tools/test.py, after a training if ``--finetune`` is given."""
    folder, checkpoint = config.parent / ('finetuned' if args.finetune else 'as_is'), args.checkpoint
    data = ['--data-root', args.data_root] if args.data_root else []
    result = folder / 'metrics.json'
    if result.exists():
        return json.loads(result.read_text())

    def run(tool: str, *flags: str) -> None:
        subprocess.run([sys.executable, ROOT / 'tools' / tool, config, *flags, '--work-dir', folder, *data], check=True)

    if args.finetune:
        run('train.py', *(['--resume'] if folder.exists() else []), '--cfg-options', *args.finetune)
        checkpoint = Path((folder / 'last_checkpoint').read_text().strip())
    run('test.py', str(checkpoint))
    tested = max((folder / 'test').glob('*/*.json'), key=lambda path: path.stat().st_mtime)
    result.write_text(tested.read_text())
    return json.loads(tested.read_text())


def compare(args: argparse.Namespace) -> None:
    """Test or train each variant, measure the times, and write the results and the picture."""
    variants = [('whole', 1., None), *((f'{score}_{keep:g}', keep, score) for score in args.scores
                                       for keep in sorted(args.keep, reverse=True) if keep < 1)]
    rows, backbones = [], {}
    for name, keep, score in variants:
        pruning = dict(type='cvt_dense.PrunedCvT', keep=keep, refresh=args.refresh, score=score) if score else {}
        metrics = metrics_of(write_config(pruning, args, args.work_dir / name), args)
        rows.append(dict(name=name, keep=keep, score=score, **{key: metrics[key] for key in MAIN if key in metrics}))
        torch.manual_seed(0)
        backbones[name] = build_model(str(args.config), **pruning).backbone.to(args.device).eval()
    x, times = torch.rand(args.batch, 3, *args.size, device=args.device), {name: [] for name in backbones}
    with torch.inference_mode():
        for i in range(args.rounds + 1):
            for name, backbone in backbones.items():
                spent = seconds(lambda backbone=backbone: backbone(x), args.device)
                times[name] += [spent] if i else []  # the first round warms up
    for row in rows:
        row['backbone_ms'] = 1e3 * statistics.median(times[row['name']])
    found = dict(config=str(args.config), checkpoint=str(args.checkpoint), size=args.size, batch=args.batch,
                 refresh=args.refresh, finetune=args.finetune, environment=environment(args.device), rows=rows)
    (args.work_dir / 'pruning.json').write_text(json.dumps(found, indent=1) + '\n')
    draw(rows, args)
    for row in rows:
        print(f'{row["name"]:14} {row["backbone_ms"]:9.1f} ms ({rows[0]["backbone_ms"] / row["backbone_ms"]:.2f} x)  '
              + '  '.join(f'{key} {row[key]:.4g}' for key in MAIN if key in row))


def draw(rows: list[dict], args: argparse.Namespace) -> None:
    """Draw each metric over time in a part of its own, with a line for each score."""
    metrics = [key for key in MAIN if key in rows[0]]
    figure, axes = new_figure(1, len(metrics))
    for axis, metric in zip(axes[0], metrics):
        for score in args.scores:
            line = [rows[0], *(row for row in rows if row['score'] == score)]
            axis.plot([row['backbone_ms'] for row in line], [row[metric] for row in line], marker='o', label=score)
        for row in rows:
            axis.annotate(f'{row["keep"]:g}', (row['backbone_ms'], row[metric]), fontsize=7)
        axis.set(xlabel=f'backbone, ms for {args.batch} x {args.size[0]}x{args.size[1]}', ylabel=metric)
        axis.grid(alpha=0.3)
        axis.legend()
    save_figure(figure, args.work_dir / 'pruning.png')


def main() -> None:
    """Compare the variants that the command line describes."""
    args = parse_args()
    with command_line.report_errors():
        record_settings(args.work_dir, 'settings.json', dict(
            config=str(args.config.resolve()), checkpoint=str(args.checkpoint.resolve()),
            written=args.checkpoint.stat().st_mtime, data_root=args.data_root, refresh=args.refresh,
            finetune=args.finetune), 'comparison')
        compare(args)


if __name__ == '__main__':
    main()
