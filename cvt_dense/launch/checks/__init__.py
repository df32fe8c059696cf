"""Checks before a training or a test; ``--no-check`` skips them.

Each check is a function in one of three lists, for the config (:data:`.config.CONFIG_CHECKS`), the data sets
(:data:`.data.DATASET_CHECKS`) and the run that was built (:data:`.weights.RUN_CHECKS`). It raises ``UserError``,
which names the given and the allowed value. MMDetection and MMSegmentation find most of these mistakes late
(in a worker, epochs into a run) or never: a category under another name is dropped silently, and a label beyond the
classes is left out of the score.
"""
