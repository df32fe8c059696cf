"""From a command line to a Runner, in four steps: read the config, check it, build the Runner, run.

:func:`.start.start` is the whole way. Only tools import this package.
"""
