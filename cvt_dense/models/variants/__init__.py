"""Further types of ``attn_cfg``, and of its ``proj_cfg`` and ``rel_pos_cfg``: one file each.

Every module in this folder is imported here, so that the types in it register. A new type is a new file.
"""
from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f'{__name__}.{module.name}')
