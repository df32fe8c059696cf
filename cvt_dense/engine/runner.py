"""MMEngine's Runner, continuing its log files."""
from pathlib import Path
from typing import Any

from mmengine.runner import Runner


class ContinuingRunner(Runner):
    """MMEngine's ``Runner``; resumed, it appends to the log files that the run has written so far.

    MMEngine names a start's folder of logs after the time. Here a resumed run takes the name of the
    newest folder with training curves in the work dir, if there is one.
    """

    def setup_env(self, env_cfg: dict[str, Any]) -> None:
        super().setup_env(env_cfg)
        if self.cfg.get('resume'):
            logs = sorted(Path(self.work_dir).glob('*/vis_data/scalars.json'))
            if logs:
                self._timestamp = logs[-1].parts[-3]
