"""Serve a model over HTTP with FastAPI: docs/guides/serving.md explains it.

    MODEL='mine.py work_dirs/mine/iter_1000.pth' PYTHONPATH=docs/examples uvicorn serve:app
"""
import os
import shlex
from threading import Semaphore
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, UploadFile

from cvt_dense.errors import UserError
from cvt_dense.inference import load, predict

model = load(*shlex.split(os.environ['MODEL']))  # once in each process, before the first request
free = Semaphore(int(os.environ.get('AT_ONCE', os.cpu_count() or 1)))  # more at once would only take more memory
app = FastAPI()


@app.get('/health')
def health() -> dict[str, Any]:
    """Answer as soon as the model is loaded."""
    return dict(task=model.task, classes=list(model.classes))


@app.post('/predict')
def answer(image: UploadFile) -> Any:
    """Predict an upload; FastAPI runs a function without ``async`` in a thread of its own."""
    try:
        with free:
            result = predict(model, image.file.read(), **(dict(score_thr=0.3) if model.task == 'detection' else {}))
    except UserError as error:  # the upload is no image, or one that this model does not take
        raise HTTPException(422, str(error)) from error
    if model.task == 'classification':
        return [dict(name=name, score=score) for name, score in result[:5]]
    if model.task == 'detection':
        return [dict(name=str(name), score=float(score), box=box.tolist())
                for name, score, box in zip(result['class_name'], result.confidence, result.xyxy)]
    numbers, counts = np.unique(result, return_counts=True)
    return [dict(name=model.name(number), share=count / result.size) for number, count in zip(
        numbers.tolist(), counts.tolist())]
