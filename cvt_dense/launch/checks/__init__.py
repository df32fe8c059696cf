"""Checks before a training or a test; ``--no-check`` skips them.

Those of a config are in :mod:`cvt_dense.config`, and those of annotation files in
:mod:`cvt_dense.annotations.data_sets`. Each check of this package is a function of
:class:`cvt_dense.launch.built.Built` in the list :data:`.built.CHECKS`, which the first process calls before anything
is written. It raises ``UserError``, which names the given and the allowed value. MMDetection and MMSegmentation find
most of these mistakes late (in a worker, epochs into a run) or never: a category under another name is dropped
silently, and a label beyond the classes is left out of the score.
"""
