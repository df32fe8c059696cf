"""Exceptions for mistakes that a user can correct.

A ``UserError`` is about what somebody typed, wrote into a config or has on disk: tools print its text alone. A
constructor or function that is called with a value that it does not allow raises ``ValueError``, as everywhere in
Python. ``CheckpointError`` is a ``ValueError`` too, for those who call the functions on weights themselves.
"""


class UserError(Exception):
    """A mistake in a command line, a config or a file; the text names the value, what is allowed, and what to do."""


class CheckpointError(UserError, ValueError):
    """A checkpoint that cannot be read, or that is not this network's."""
