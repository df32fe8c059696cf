"""Log a summary of a run as it begins: model, data, weights, length, device and folder."""
import torch
from mmengine.hooks import Hook
from mmengine.optim import AmpOptimWrapper
from mmengine.runner import Runner

from ...classes import Classes
from ...errors import listed
from ...models.wrappers import innermost, unwrap
from ...weights.strict_loading import pretrained_cfgs
from ..amp import AutocastOptimWrapper
from ..schedules import data_shape


class AnnounceHook(Hook):
    """Log the summary of a run, whose :class:`~cvt_dense.engine.CvTRunner` knows what was changed and loaded."""

    priority = 'VERY_HIGH'

    def before_train(self, runner: Runner) -> None:
        wrapper, cfg, shape = runner.optim_wrapper, runner.cfg, data_shape(runner)
        optimizer, steps = (cfg.get('optim_wrapper') or {}).get('optimizer') or {}, shape['accumulative_counts']
        length = f'{runner.max_epochs} epochs' if 'max_epochs' in cfg.train_cfg else f'{runner.max_iters} iters'
        scaling, advice = cfg.get('auto_scale_lr') or {}, ''
        if 'base_batch_size' in scaling and not scaling.get('enable'):
            advice = f'; it is for {scaling["base_batch_size"]} images a step, and --auto-scale-lr scales it'
        images = shape['world_size'] * shape['batch_size'] * steps
        precision = 'float32'
        if isinstance(wrapper, AmpOptimWrapper | AutocastOptimWrapper):
            precision = str((cfg.get('optim_wrapper') or {}).get('dtype', 'mixed precision'))
        self._log(runner, 'train', precision, {
            'length': f'{length}, {images} images a step (processes x images x accumulated steps: '
                      f'{shape["world_size"]} x {shape["batch_size"]} x {steps})',
            'optimizer': f'{optimizer.get("type")}, learning rate {runner.rates or optimizer.get("lr")}{advice}'})

    def before_test(self, runner: Runner) -> None:
        self._log(runner, 'test', str(getattr(unwrap(runner.model), 'dtype', 'float32')).removeprefix('torch.'), {})

    def _log(self, runner: Runner, stage: str, precision: str, lines: dict[str, str]) -> None:
        model = innermost(runner.model)
        dataset = getattr(runner, f'{stage}_dataloader').dataset
        loops = dict(train=runner.train_loop, val=runner.val_loop) if stage == 'train' else dict(test=runner.test_loop)
        parts = [type(part).__name__ for name, part in model.named_children() if name != 'data_preprocessor']
        millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
        classes = list(map(str, Classes.of_data(dataset, stage).names))
        images = ', '.join(f'{name} {len(loop.dataloader.dataset)} images' for name, loop in loops.items() if loop)
        file = runner.trained.source if runner.trained else runner._load_from
        files = [file] if file else [
            str(cfg.get('checkpoint')) for module in model.modules() for cfg in pretrained_cfgs(module)]
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'
        lines = {
            'model': f'{type(model).__name__} with {", ".join(parts)}, {millions:.2f} million parameters',
            'data': f'{images}; {len(classes)} classes: {listed(classes, 10)}',
            'weights': ', '.join(files) or 'random (from scratch)', **lines,
            **({'adapted': '; '.join(runner.changes)} if runner.changes else {}),
            'runs on': f'{runner.world_size} x {device}, {precision}', 'folder': runner.work_dir,
            'log': runner.logger.log_file}
        runner.logger.info(''.join(f'\n  {name + ":":<11}{line}' for name, line in lines.items()))
