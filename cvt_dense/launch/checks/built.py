"""Check what has been built for a run."""
from ..built import Built
from .batches import check_batch_norm, check_loaders, check_scored
from .heads import check_class_folders, check_heads, check_single_class
from .images import check_files
from .schedule import check_schedule
from .weights import check_weights

# Each takes what has been built, and raises UserError.
CHECKS = [check_class_folders, check_heads, check_single_class, check_files, check_loaders, check_scored,
          check_weights, check_batch_norm, check_schedule]


def check(built: Built) -> None:
    """Run :data:`CHECKS`, which change nothing."""
    for check_one in CHECKS:
        check_one(built)
