"""Compare the weights that a run loads with its model, without loading them."""
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

from ...config.data_sets import class_names
from ...errors import UserError
from ...inference.model import check_checkpoint


def check_weights(cfg: Config, model: nn.Module, datasets: dict[str, Any]) -> None:
    """Check the checkpoint that a run continues, fine-tunes or tests, or else the weights of ``init_cfg``.

    Args:
        cfg: the run's config.
        model: the model that was built from it.
        datasets: by stage, those that the run uses.

    Raises:
        UserError: a file cannot be read, is for another architecture, or was trained on the test's classes in
            another order, which would mix up the scores.
    """
    if cfg.get('load_from'):
        content = check_checkpoint(model, cfg.load_from, strict=bool(cfg.get('resume')) or 'train' not in datasets)
        classes = ((content.get('meta') or {}).get('dataset_meta') or {}).get('classes')
        names = class_names(datasets.get('test'))
        if names and classes and len(names) == len(classes) and list(names) != list(classes):
            message = (f'checkpoint {cfg.load_from!r} was trained on the classes {list(classes)}; test_dataloader has '
                       f'{list(names)}, and scores compare them by number. Correct metainfo.classes.')
            if sorted(names) == sorted(classes):
                raise UserError(message)
            print_log(message, logger='current', level=30)
        return
    try:
        for module in model.modules():
            if hasattr(module, 'check_init_weights'):
                module.check_init_weights()
    except FileNotFoundError as error:
        raise UserError(f'{error} It is named by init_cfg (in a template: pretrained); None trains from scratch.'
                        ) from error
