"""Write files that run without this package, check them, and open them again.

``export.py`` and its helpers write a file. ``runtime.py`` opens one: ``open_exported(path, runtime=None)`` returns a
callable with ``metadata``. ``exported.py`` puts a file in the place of a config's model. The page
``docs/reference/exported_files.md`` defines the format, for both sides and for programs without this package.
"""
