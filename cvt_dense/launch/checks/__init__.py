"""Checks before a training or a test; ``--no-check`` skips them.

:mod:`.settings` has those of a config before anything is built. Each other check is a function of
:class:`.built.Built`, in the list :data:`.built.CHECKS`. It raises ``UserError``, which names the given and the allowed
value. MMDetection and MMSegmentation find most of these mistakes late (in a worker, epochs into a run) or never: a
category under another name is dropped silently, and a label beyond the classes is left out of the score.
"""
