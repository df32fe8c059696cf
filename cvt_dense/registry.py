"""Child registries of MMEngine's, in the scope ``cvt_dense``.

MMEngine imports this module when a config names a type ``cvt_dense.<Name>`` and then imports the
``locations``, so no config needs ``custom_imports``.
"""
from mmengine import registry as mmengine_registry
from mmengine.registry import Registry


def _child(name: str, parent: str, *locations: str) -> Registry:
    return Registry(name, parent=getattr(mmengine_registry, parent), scope='cvt_dense',
                    locations=[f'cvt_dense.{location}' for location in locations])


MODELS = _child('model', 'MODELS', 'models', 'pretraining')
DATASETS = _child('dataset', 'DATASETS', 'pretraining', 'engine')
DATA_SAMPLERS = _child('data sampler', 'DATA_SAMPLERS', 'engine')
METRICS = _child('metric', 'METRICS', 'pretraining')
HOOKS = _child('hook', 'HOOKS', 'engine')
OPTIM_WRAPPERS = _child('optimizer wrapper', 'OPTIM_WRAPPERS', 'engine')
OPTIM_WRAPPER_CONSTRUCTORS = _child(
    'optimizer wrapper constructor', 'OPTIM_WRAPPER_CONSTRUCTORS', 'engine')

# This package has no objects of the other kinds. But MMEngine builds them in a run's default scope too, and without a
# registry of a kind it warns of each object that this "may cause unexpected failure".
OWN = ('MODELS', 'DATASETS', 'DATA_SAMPLERS', 'METRICS', 'HOOKS', 'OPTIM_WRAPPERS', 'OPTIM_WRAPPER_CONSTRUCTORS')
EMPTY = [_child(parent.name, name) for name, parent in vars(mmengine_registry).items()
         if isinstance(parent, Registry) and name not in OWN]
