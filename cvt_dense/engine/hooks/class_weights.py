"""Weigh rare classes more in a segmentor's loss."""
import numpy as np
from mmcv.transforms import LoadAnnotations
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...errors import UserError
from ...registry import HOOKS
from ..data_sets import leaves, transforms_of

IMAGES = 1000  # label maps that are counted at most


@HOOKS.register_module()
class ClassWeightsHook(Hook):
    """Weigh each class of a segmentor's loss by ``1 / sqrt(f)``, where f is its fraction of the training's pixels.

    The pixels are counted before the first iteration, also of a resumed run, in label maps that are spaced evenly over
    the training set. Every loss of the pixels' classes with ``class_weight`` gets the weights, whose mean over the
    counted pixels is 1. A class without pixels has the weight 1.

    Raises:
        UserError: the training set loads no label maps, or there is no such loss: Mask2Former's classes are those of
            queries, and its weights include that of no object.
    """

    def before_train(self, runner: Runner) -> None:
        datasets = leaves(runner.train_dataloader.dataset)
        loads = [step for leaf in datasets for step in transforms_of(leaf) if isinstance(step, LoadAnnotations)]
        classes = getattr(datasets[0], 'metainfo', {}).get('classes', ())
        losses = [module for module in runner.model.modules() if hasattr(module, 'class_weight')
                  and len(classes if module.class_weight is None else module.class_weight) == len(classes)
                  and not (hasattr(module, 'use_mask') and module.use_sigmoid)]  # the binary CrossEntropyLoss
        if len(loads) != len(datasets) or not losses or not hasattr(datasets[0], 'ignore_index'):
            raise UserError('ClassWeightsHook needs a training set with label maps and a loss with class_weight (not '
                            "Mask2Former's). Remove the hook, or set balance = None in a template.")
        counts = np.zeros(len(classes))
        for dataset, load in zip(datasets, loads):
            for i in range(0, len(dataset), -(-sum(map(len, datasets)) // IMAGES)):
                labels = load(dataset.get_data_info(i))['gt_seg_map']
                known = labels[(labels != dataset.ignore_index) & (labels < len(classes))]
                counts += np.bincount(known, minlength=len(classes))
        fractions = counts / max(counts.sum(), 1)
        weights = 1 / np.sqrt(np.where(counts, fractions, 1))
        weights = np.where(counts, weights / max((fractions * weights).sum(), 1e-12), 1)
        for loss in losses:
            loss.class_weight = weights.tolist()
        runner.logger.info('Weights of the classes in the loss: '
                           + ', '.join(f'{name} {weight:.2f}' for name, weight in zip(classes, weights)))
