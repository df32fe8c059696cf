"""Trains a list of networks, each with several seeds, and sets accuracy beside cost: a table and a picture.

    python tools/study.py configs/studies/cifar_backbones.py --data-root data/cifar10

A study is a file of a few names, see configs/studies. Every training is a command of this project, printed as it runs;
interrupted, or with members added, the same command goes on where it was. A member that fails does not stop the others,
the table names it.
"""
import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from _study import Run, remember, run_together, train
from mmengine.config import Config

from cvt_dense import curves
from cvt_dense.errors import UserError
from cvt_dense.launch import command_line

STUDIES = ROOT / 'configs/studies'
DEFAULTS = dict(options=[], seeds=[0], size=None, batch=1, metrics=[], changes={}, data='', weights={})
MEMBER = ('name', 'config', *DEFAULTS)  # a member's settings; a study's own, but for the name, are those of all members


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Trains a list of networks, and sets accuracy beside cost.')
    parser.add_argument('study', help='file of the study, as those in configs/studies')
    parser.add_argument('--work-dir', metavar='DIR', help='folder of everything that it writes '
                                                          '(default: work_dirs/<study>)')
    parser.add_argument('--data-root', metavar='DIR', help="of the members' data (default: their configs')")
    parser.add_argument('--jobs', type=int, default=2, metavar='N',
                        help="trainings at a time, an equal share of the CPU's cores each (default: %(default)s)")
    parser.add_argument('--only', nargs='+', metavar='NAME', help='these members alone')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help="of every training, after the study's own, e.g. max_epochs=1")
    return parser.parse_args()


def read_study(file: str, only: list[str] | None = None) -> list[dict[str, Any]]:
    """The members of a study, each with every setting.

    Raises:
        UserError: no such file; a setting or a member that does not exist.
    """
    if not Path(file).is_file():
        raise UserError(f'{file!r} is no study. There are: {", ".join(sorted(map(str, STUDIES.glob("*.py"))))}.')
    study = Config.fromfile(file).to_dict()
    given = {key: study[key] for key in MEMBER[1:] if key in study}
    members = [dict(DEFAULTS, **{**given, **member}) for member in study.get('members') or []]
    for member in members:
        unknown = sorted(set(member) - set(MEMBER))
        changes = [option for option in member['options'] if option.startswith('model.') and '.init_cfg' not in option]
        if changes and member.get('size'):
            raise UserError(f'{file}: {member.get("name")} has the options {changes}, which the measured cost would '
                            "not know: give them as 'changes'.")
        if unknown or not member.get('name') or not member.get('config'):
            raise UserError(f'{file}: a member has {sorted(member)}; allowed are {list(MEMBER)}, and name and config '
                            f'must be there{f", not {unknown}" if unknown else ""}.')
        member['config'] = str(ROOT / 'configs' / member['config'])
        if not Path(member['config']).is_file():
            raise UserError(f'{file}: {member["name"]} names {member["config"]}, which does not exist.')
    names = [member['name'] for member in members]
    for member in members:
        nobody = sorted(set(member['weights'].values()) - set(names))
        if nobody:
            raise UserError(f"{file}: {member['name']} takes the weights of {nobody}; there are {names}.")
    missing = [name for name in only or [] if name not in names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if missing or twice or not names:
        raise UserError(f'{file} has the members {names}' + (f', no {missing[0]!r}: --only takes those.' if missing else
                        f', {twice} more than once.' if twice else ': there must be one at least.'))
    return [member for member in members if not only or member['name'] in only]


def runs_of(member: dict[str, Any], work_dir: Path, data_root: str | None, options: list[str],
            seeds: dict[str, list[int]]) -> list[Run]:
    """A run for each seed, of the member's config or, with ``changes``, of one that inherits it.

    Weights of another member are of the same seed, or of its first if it has not got that one.

    Args:
        member: with every setting.
        work_dir: the study's.
        data_root: the study's.
        options: of all runs.
        seeds: of every member, by its name.
    """
    config = Path(member['config'])
    if member['changes']:
        lines = [f'_base_ = {str(config)!r}', *(f'{key} = {value!r}' for key, value in member['changes'].items())]
        config = work_dir.resolve() / 'configs' / f'{member["name"]}.py'
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text('\n'.join(lines) + '\n')
    member['file'] = str(config.relative_to(ROOT) if config.is_relative_to(ROOT) else config)
    root = data_root and str(Path(data_root) / member['data'])
    return [Run(name_of(member['name'], seed), member['file'],
                (*member['options'], f'randomness.seed={seed}', *options), root,
                {setting: name_of(other, seed if seed in seeds[other] else seeds[other][0])
                 for setting, other in member['weights'].items()}, bool(member['metrics']))
            for seed in member['seeds']]


def name_of(member: str, seed: int) -> str:
    return f'{member}_seed{seed}'


def measure(members: list[dict[str, Any]], work_dir: Path) -> dict[str, str]:
    """Writes what each network costs, one after the other on all cores; returns why, by name, where that failed."""
    failed = {}
    for member in members:
        name, file = member['name'], work_dir / f'{member["name"]}_cost.json'
        if member['size'] and not _cost(file):
            command = ['tools/benchmark.py', 'model', member['file'], '--size', member['size'], '--batch',
                       str(member['batch']), '--rounds', '7', '--json', str(file)]
            failed |= run_together({name: command}, {name: work_dir / f'{name}_cost.log'})
    return failed


def _cost(file: Path) -> dict[str, Any]:
    """What was measured; nothing if that has not been, or the network did not fit into memory."""
    row, = json.loads(file.read_text())['rows'] if file.exists() else [{}]
    return row if row.get('gflop') else {}


def results(members: list[dict[str, Any]], work_dir: Path, failed: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each member: mean and range of each metric over its seeds, cost, and what failed."""
    rows = []
    for member in members:
        files = [work_dir / name_of(member['name'], seed) / 'finished' for seed in member['seeds']]
        found = [json.loads(file.read_text()) for file in files if file.exists()]
        row = dict(name=member['name'], finished=len(found), runs=len(member['seeds']), metrics={})
        for metric in member['metrics']:
            values = [result[metric] for result in found if metric in result]
            if values:
                row['metrics'][metric] = dict(values=values, mean=statistics.fmean(values), low=min(values),
                                              high=max(values))
        file = work_dir / f'{member["name"]}_cost.json'
        measured = _cost(file)
        if file.exists() and not measured:
            failed[member['name']] = f'{member["name"]} did not fit into memory when its cost was measured'
        if measured:
            row.update(parameters=measured['parameters'], gmacs=measured['gflop'] / 2 / member['batch'],
                       images_per_s=measured['images_per_s'])
        if found and member['metrics'] and not row['metrics']:
            failed[member['name']] = f'{member["name"]} has no metric {member["metrics"]}, but {list(found[0])}'
        row['failed'] = [failed[name] for name in (*(name_of(member['name'], seed) for seed in member['seeds']),
                                                   member['name']) if name in failed]
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown; a failed run's reason, in short, stands in its row."""
    metrics = list(dict.fromkeys(metric for row in rows for metric in row['metrics']))
    cost = ['parameters (M)', 'GMACs', 'images/s'] if any('gmacs' in row for row in rows) else []
    heads = ['', 'runs', *(f'{metric} (range)' for metric in metrics), *cost, '']
    lines = [heads, ['---'] * len(heads)]
    for row in rows:
        cells = [row['name'], f'{row["finished"]}/{row["runs"]}']
        for metric in metrics:
            found = row['metrics'].get(metric)
            cells.append(f'{found["mean"]:.4g} ({found["low"]:.4g} - {found["high"]:.4g})' if found else '')
        cells += [f'{row["parameters"] / 1e6:.2f}', f'{row["gmacs"]:.3g}', f'{row["images_per_s"]:.0f}'] \
            if 'gmacs' in row else [''] * len(cost)
        lines.append(cells + ['; '.join(reason.partition(';')[0] for reason in row['failed'])])
    return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def main() -> None:
    args = parse_args()
    with command_line.report_errors(UserError, ValueError, OSError):
        if args.jobs < 1:
            raise UserError(f'--jobs {args.jobs}: it must be a whole number, 1 or more.')
        everyone, members = read_study(args.study), read_study(args.study, args.only)
        seeds = {member['name']: member['seeds'] for member in everyone}
        work_dir = Path(args.work_dir or ROOT / 'work_dirs' / Path(args.study).stem).resolve()
        data_root = args.data_root and str(Path(args.data_root).resolve())
        remember(work_dir, 'study.json', {
            'data_root': data_root, 'cfg_options': args.cfg_options,
            **{member['name']: member for member in everyone}}, 'study', may_grow=True)
        runs = [run for member in members for run in runs_of(member, work_dir, data_root, args.cfg_options, seeds)]
        failed = train(runs, work_dir, args.jobs)
        failed |= measure(members, work_dir)
        rows = results(members, work_dir, failed)
        (work_dir / 'results.json').write_text(json.dumps(rows, indent=1) + '\n')
        (work_dir / 'table.md').write_text(table(rows) + '\n')
        print(f'\n{table(rows)}\n\ntable: {work_dir / "table.md"}')
        if any('gmacs' in row and row['metrics'] for row in rows):
            curves.draw_costs(rows, work_dir / 'study.png')
            print(f'picture: {work_dir / "study.png"}')
    if failed:
        sys.exit('\n'.join(['', *failed.values(), '', f'{len(failed)} failed; the same command tries them again.']))


if __name__ == '__main__':
    main()
