"""Checks before a run writes a checkpoint; ``--no-check`` skips them.

Each check is a function of the config and of what is built. It raises ``UserError`` with one sentence that names the
given and the allowed value, or logs a warning. To add a check, add a function to one of the lists below.
MMDetection and MMSegmentation find most of these mistakes late (in a worker, epochs into a run) or never: a category
under another name is dropped silently, and a label beyond the classes is left out of the score.
"""
from .annotations import check_annotations
from .channels import check_channels, check_levels, check_normalisers
from .classes import check_batches, check_class_folders, check_heads, check_outputs
from .files import check_files
from .schedules import check_schedules
from .weights import check_teacher, check_weights

# Before all these, ..paths checks the folders and COCO files that a config names.
CONFIG_CHECKS = [check_schedules, check_heads, check_levels, check_normalisers, check_annotations]  # (cfg, stages)
DATASET_CHECKS = [check_batches, check_class_folders, check_outputs, check_files, check_channels]  # (cfg, datasets)
WEIGHT_CHECKS = [check_weights, check_teacher]  # (cfg, model, datasets)

__all__ = ['CONFIG_CHECKS', 'DATASET_CHECKS', 'WEIGHT_CHECKS']
