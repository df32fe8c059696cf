"""Types resolve in the scope 'cvt_dense' as in MMEngine's own."""
from mmengine.registry import HOOKS, LOOPS, OPTIMIZERS, DefaultScope


def test_what_is_mmengines_is_found_in_our_scope_and_what_is_ours_from_any():
    with DefaultScope.overwrite_default_scope('cvt_dense'):
        assert [LOOPS.get('TestLoop').__name__, OPTIMIZERS.get('AdamW').__name__] == ['TestLoop', 'AdamW']
    for scope in ('mmengine', 'mmdet', 'mmseg'):
        with DefaultScope.overwrite_default_scope(scope):
            assert HOOKS.get('cvt_dense.SeedHook').__module__ == 'cvt_dense.engine.hooks.seed'
