"""From a command line to a Runner: read the config, check it, build the Runner.

:func:`.start.start_training` and :func:`.start.start_test` are the whole way. Only the commands and the
package's ``__init__``, which has :func:`train` and :func:`test`, import this package.
"""
