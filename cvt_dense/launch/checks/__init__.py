"""Checks before a training or a test; ``--no-check`` skips them.

Each check is a function in the list :data:`.config.CONFIG_CHECKS` or :data:`.data.DATASET_CHECKS`; :mod:`.weights` has
one more. It raises ``UserError`` with one sentence that names the given and the allowed value. MMDetection and
MMSegmentation find most of these mistakes late (in a worker, epochs into a run) or never: a category under another name
is dropped silently, and a label beyond the classes is left out of the score.
"""
