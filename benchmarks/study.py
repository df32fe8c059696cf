"""Trains a list of networks, each with several seeds, and compares accuracy and cost in a table.

    python benchmarks/study.py configs/studies/cifar_backbones.py --data-root data/cifar10

A study is a file of a few names, see configs/studies. Every training is a command of this project, printed as it runs;
the same command continues an interrupted study, or one with added members. A member that fails does not stop the
others; the table names it.
"""
import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tools')]

from _study import Run, record_settings, run_together, train
from mmengine.config import Config

from cvt_dense.errors import UserError
from cvt_dense.launch import command_line

STUDIES = ROOT / 'configs/studies'


@dataclass
class Member:
    """A network of a study. Settings of a study outside of its members apply to all of them.

    Attributes:
        name: name of the run.
        config: path of its config; in a study's file a name in configs/.
        options: values of --cfg-options.
        seeds: seeds of its trainings.
        size: 'HxW' of the images for which its cost is measured; None: it is not.
        batch: number of images in a step.
        metrics: names, as in the log, of the metrics in the table.
        changes: settings that replace those of the config.
        data: folder of the data below --data-root.
        weights: by setting, the name of the member whose last checkpoint it takes.
    """
    name: str
    config: str
    options: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [0])
    size: str | None = None
    batch: int = 1
    metrics: list[str] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    data: str = ''
    weights: dict[str, str] = field(default_factory=dict)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description='Trains a list of networks, and compares accuracy and cost.')
    parser.add_argument('study', help='file of the study, as those in configs/studies')
    parser.add_argument('--work-dir', metavar='DIR', help='folder of everything that it writes '
                                                          '(default: work_dirs/<study>)')
    parser.add_argument('--data-root', metavar='DIR', help="folder of the members' data (default: their configs')")
    parser.add_argument('--jobs', type=int, default=2, metavar='N',
                        help="trainings at a time, with an equal part of the CPU's cores each (default: %(default)s)")
    parser.add_argument('--only', nargs='+', metavar='NAME', help='these members alone')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help="options of every training, after the study's own, e.g. train_cfg.max_epochs=1")
    return parser


def read_study(file: str, only: list[str] | None = None) -> list[Member]:
    """Return the members of a study, or those that are named in ``only``.

    Raises:
        UserError: a member that does not exist, or whose options change the network that is measured.
    """
    study = Config.fromfile(file).to_dict()
    common = {setting.name: study[setting.name] for setting in fields(Member) if setting.name in study}
    members = [Member(**{**common, **settings}) for settings in study['members']]
    for member in members:
        member.config = str(ROOT / 'configs' / member.config)
        if member.size and any(re.match(r'model\.(?!.*init_cfg)', option) for option in member.options):
            raise UserError(f'{file}: the measured cost of {member.name} would not have its options: give changes of '
                            "the model as 'changes'.")
    names = [member.name for member in members]
    if not set(only or ()) <= set(names):
        raise UserError(f'--only {only}: there are {names}.')
    return [member for member in members if not only or member.name in only]


def config_of(member: Member, work_dir: Path) -> str:
    """Return the member's config, seen from the project's root; with ``changes`` one is written that inherits it."""
    config = Path(member.config)
    if member.changes:
        lines = [f'_base_ = {str(config)!r}', *(f'{key} = {value!r}' for key, value in member.changes.items())]
        config = work_dir.resolve() / 'configs' / f'{member.name}.py'
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text('\n'.join(lines) + '\n')
    return str(config.relative_to(ROOT) if config.is_relative_to(ROOT) else config)


def runs_of(member: Member, work_dir: Path, data_root: str | None, options: list[str],
            seeds: dict[str, list[int]]) -> list[Run]:
    """Return a run for each seed.

    Args:
        member: whose runs they are.
        work_dir: the study's.
        data_root: the study's.
        options: options of all runs.
        seeds: seeds of every member, by its name. A member that takes the weights of another one takes those of the
            same seed, or of the other one's first seed.
    """
    config = config_of(member, work_dir)
    return [Run(name_of(member.name, seed), config, (*member.options, f'randomness.seed={seed}', *options),
                data_root and str(Path(data_root) / member.data),
                {setting: name_of(other, seed if seed in seeds[other] else seeds[other][0])
                 for setting, other in member.weights.items()}, bool(member.metrics))
            for seed in member.seeds]


def name_of(member: str, seed: int) -> str:
    """Return the name of a member's training with a seed, which is also that of its folder."""
    return f'{member}_seed{seed}'


# -- cost and results --------------------------------------------------------------------------------


def measure(members: list[Member], work_dir: Path) -> dict[str, str]:
    """Write what each network costs, one after the other on all cores; return, by name, why that failed."""
    failed = {}
    for member in members:
        name, file = member.name, work_dir / f'{member.name}_cost.json'
        if member.size and not _cost(file):
            command = ['tools/benchmark.py', 'model', config_of(member, work_dir), '--size', member.size, '--batch',
                       str(member.batch), '--rounds', '7', '--json', str(file)]
            failed |= run_together({name: command}, {name: work_dir / f'{name}_cost.log'})
            if name not in failed and not _cost(file):
                failed[name] = f'{name} did not fit into memory when its cost was measured'
    return failed


def _cost(file: Path) -> dict[str, Any]:
    """Return what was measured; nothing if that has not been, or the network did not fit into memory."""
    row, = json.loads(file.read_text())['rows'] if file.exists() else [{}]
    return row if row.get('latency_ms') else {}


def results(members: list[Member], work_dir: Path, failed: dict[str, str]) -> list[dict[str, Any]]:
    """Return a row for each member: mean and range of each metric over its seeds, cost, and failures.

    Args:
        members: members of the study.
        work_dir: folder of all runs.
        failed: reasons of failures by name; a member without any of its metrics is added.
    """
    from get_flops import count_parts

    from cvt_dense.cli.random_batch import build_model, parse_size
    rows = []
    for member in members:
        runs = [name_of(member.name, seed) for seed in member.seeds]
        files = [work_dir / run / 'finished' for run in runs]
        found = [json.loads(file.read_text()) for file in files if file.exists()]
        values = {metric: [result[metric] for result in found if metric in result] for metric in member.metrics}
        metrics = {metric: dict(values=numbers, mean=statistics.fmean(numbers), low=min(numbers), high=max(numbers))
                   for metric, numbers in values.items() if numbers}
        if found and member.metrics and not metrics:
            failed[member.name] = f'{member.name} has no metric {member.metrics}, but {list(found[0])}'
        cost = _cost(work_dir / f'{member.name}_cost.json')
        rows.append(dict(name=member.name, finished=len(found), runs=len(runs), metrics=metrics,
                         failed=[failed[name] for name in (*runs, member.name) if name in failed]))
        if cost:
            network = build_model(str(ROOT / config_of(member, work_dir)))
            parameters, macs = map(sum, zip(*count_parts(network, parse_size(member.size)).values()))
            rows[-1].update(parameters=parameters, gmacs=macs / 1e9, images_per_s=cost['images_per_s'])
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown; the row of a failed run has the reason in short."""
    metrics = list(dict.fromkeys(metric for row in rows for metric in row['metrics']))
    heads = ['', 'runs', *(f'{metric} (range)' for metric in metrics), 'parameters (M)', 'GMACs', 'images/s', '']
    lines = [heads, ['---'] * len(heads)]
    for row in rows:
        cells = [row['name'], f'{row["finished"]}/{row["runs"]}']
        for metric in metrics:
            found = row['metrics'].get(metric)
            cells.append(f'{found["mean"]:.4g} ({found["low"]:.4g} - {found["high"]:.4g})' if found else '')
        cells += [f'{row["parameters"] / 1e6:.2f}', f'{row["gmacs"]:.3g}', f'{row["images_per_s"]:.0f}'] \
            if 'gmacs' in row else [''] * 3
        lines.append(cells + ['; '.join(reason.partition(';')[0] for reason in row['failed'])])
    return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, measure and summarise the study that the command line names."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors(OSError):
        command_line.check_value('--jobs', args.jobs, 1)
        everyone, members = read_study(args.study), read_study(args.study, args.only)
        seeds = {member.name: member.seeds for member in everyone}
        work_dir = Path(args.work_dir or ROOT / 'work_dirs' / Path(args.study).stem).resolve()
        data_root = args.data_root and str(Path(args.data_root).resolve())
        record_settings(work_dir, 'study.json', {
            'data_root': data_root, 'cfg_options': args.cfg_options,
            **{member.name: asdict(member) for member in everyone}}, 'study')
        runs = [run for member in members for run in runs_of(member, work_dir, data_root, args.cfg_options, seeds)]
        failed = train(runs, work_dir, args.jobs)
        failed |= measure(members, work_dir)
        rows = results(members, work_dir, failed)
        (work_dir / 'results.json').write_text(json.dumps(rows, indent=1) + '\n')
        (work_dir / 'table.md').write_text(table(rows) + '\n')
        print(f'\n{table(rows)}\n\ntable: {work_dir / "table.md"}')
    if failed:
        sys.exit('\n'.join(['', *failed.values(), '', f'{len(failed)} failed; the same command tries them again.']))


if __name__ == '__main__':
    main()
