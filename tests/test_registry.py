"""Types resolve in the scope 'cvt_dense' as in MMEngine's own."""
import subprocess
import sys

import pytest
from mmengine import registry
from mmengine.registry import HOOKS, LOOPS, OPTIMIZERS, DefaultScope

import cvt_dense.registry as ours

KINDS = [name for name, value in vars(registry).items() if isinstance(value, registry.Registry)]


@pytest.mark.parametrize('kind', KINDS)
def test_every_kind_can_be_built_in_our_scope(kind):
    """MMEngine warns of an unexpected failure for each object of a kind that the default scope does not have."""
    with getattr(registry, kind).switch_scope_and_registry('cvt_dense') as found:
        assert found.scope == 'cvt_dense' and found.parent is getattr(registry, kind)


def test_what_is_mmengines_is_found_in_our_scope_and_what_is_ours_from_any():
    assert len(KINDS) > 20 and len(ours.EMPTY) == len(KINDS) - 9
    with DefaultScope.overwrite_default_scope('cvt_dense'):
        assert [LOOPS.get('TestLoop').__name__, OPTIMIZERS.get('AdamW').__name__] == ['TestLoop', 'AdamW']
    for scope in ('mmengine', 'mmdet', 'mmseg'):
        with DefaultScope.overwrite_default_scope(scope):
            assert HOOKS.get('cvt_dense.SeedHook').__module__ == 'cvt_dense.engine.hooks.seed'


def test_the_backbone_needs_nothing_of_slices():
    script = ("import sys; from mmengine.registry import MODELS; assert MODELS.get('cvt_dense.CvT'); "
              "sys.exit('pycocotools' in sys.modules or 'cvt_dense.inference.slices' in sys.modules)")
    subprocess.run([sys.executable, '-c', script], check=True)
