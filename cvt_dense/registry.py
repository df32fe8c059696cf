"""Child registries of MMEngine's, in the scope ``cvt_dense``.

MMEngine imports this module when a config names a type ``cvt_dense.<Name>`` and then imports the
``locations``, so no ``custom_imports`` line is needed in anyone's config.
"""
from mmengine import registry as mmengine_registry
from mmengine.registry import Registry


def _child(name: str, parent: str, *locations: str) -> Registry:
    return Registry(
        name,
        parent=getattr(mmengine_registry, parent),
        scope='cvt_dense',
        locations=[f'cvt_dense.{location}' for location in locations])


MODELS = _child('model', 'MODELS', 'models')
DATASETS = _child('dataset', 'DATASETS', 'datasets')
DATA_SAMPLERS = _child('data sampler', 'DATA_SAMPLERS', 'datasets')
TRANSFORMS = _child('transform', 'TRANSFORMS', 'datasets')
METRICS = _child('metric', 'METRICS', 'evaluation')
HOOKS = _child('hook', 'HOOKS', 'engine')
LOOPS = _child('loop', 'LOOPS', 'engine')
OPTIM_WRAPPER_CONSTRUCTORS = _child(
    'optimizer wrapper constructor', 'OPTIM_WRAPPER_CONSTRUCTORS', 'engine')
