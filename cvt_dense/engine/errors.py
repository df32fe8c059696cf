"""The error that ends a command with a paragraph instead of a traceback."""


class UserError(Exception):
    """Something the user can put right: the message says what was given, what is allowed, what to do."""
