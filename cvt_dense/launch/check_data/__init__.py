"""Checks the files of detection and segmentation data before a run, so that a mistake costs seconds, not hours.

MMDetection and MMSegmentation find most of these late (in a worker, epochs into the run) or never: a
category under another name is dropped without a word, a label value beyond the classes is left out of
the score.
"""
from .annotations import check_annotations, check_paths
from .channels import check_channels
from .files import check_files
from .heads import check_heads

__all__ = ['check_annotations', 'check_channels', 'check_files', 'check_heads', 'check_paths']
