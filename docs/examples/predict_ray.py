"""Predict the images below a folder with Ray Data, on this machine or on a cluster: docs/guides/serving.md explains it.

    python docs/examples/predict_ray.py CONFIG CHECKPOINT IMAGES OUT

Writes OUT/annotations/train.json, as tools/predict.py does with --save coco.
"""
import json
import sys
from pathlib import Path
from typing import Any

import ray

from cvt_dense.annotations.convert import Data, Sample, write_annotations
from cvt_dense.errors import UserError
from cvt_dense.images import images_below
from cvt_dense.inference import load, predict

ACTORS, SCORE_THR = 2, 0.3


class Predictor:
    """An actor, which loads the model once and predicts the images of one batch after the other."""

    def __init__(self, config: str, checkpoint: str):
        self.model = load(config, checkpoint)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Add the size and the objects of each image in ``batch['path']`` as JSON, or the reason of a failure."""
        return dict(batch, result=[json.dumps(self.predict(Path(path))) for path in batch['path']])

    def predict(self, path: Path) -> dict[str, Any]:
        """Return the size and the objects of an image."""
        try:
            image = self.model.read(path)
            sample = Sample(path, height=image.shape[0], width=image.shape[1])
            sample.add_detections(predict(self.model, image, score_thr=SCORE_THR))
        except (UserError, ValueError, RuntimeError) as error:
            return dict(error=str(error))
        return dict(height=sample.height, width=sample.width, objects=sample.objects)


def main(config: str, checkpoint: str, folder: str, out: str) -> None:
    """Predict the images below a folder, which all machines see under the same path."""
    paths = [dict(path=path) for path in images_below(Path(folder).resolve())]
    rows = ray.data.from_items(paths).map_batches(
        Predictor, fn_constructor_args=(config, checkpoint), batch_size=16,
        compute=ray.data.ActorPoolStrategy(size=ACTORS))
    data = Data([*load(config, checkpoint, device='cpu').classes])
    for row in sorted(rows.iter_rows(), key=lambda row: row['path']):
        result = json.loads(row['result'])
        if 'error' in result:
            print(f'{row["path"]}: {result["error"]}')
        else:
            data.samples.append(Sample(Path(row['path']), **result))
    write_annotations(data, Path(out), 'coco')


if __name__ == '__main__':
    main(*sys.argv[1:])
