"""Write the videos of tools/predict.py: supervision reads and writes the frames, on which the predictions are drawn."""
import argparse
from pathlib import Path

import cv2
import numpy as np
import supervision as sv

from ..atomic import atomic_path
from ..errors import UserError
from ..inference import Model, predict
from .pictures import annotate

USUAL_RATE = 25.  # frames/s of a video that gives none


def annotate_video(model: Model, path: Path, out: Path, args: argparse.Namespace) -> str:
    """Draw the predictions on each frame of a video, turned as its header says: phones write frames as they are held.

    Args:
        model: a detector or a segmentor.
        path: the video.
        out: the video to write.
        args: flags of the tool: ``score_thr``, ``slice`` and ``overlap``.

    Returns:
        A line of text that sums the video up.

    Raises:
        UserError: the model is another one, or no frame can be read.
    """
    if model.task not in ('detection', 'segmentation') or args.save:
        raise UserError('videos are for detection and segmentation, without --save')
    capture, frames = cv2.VideoCapture(str(path)), 0
    rate, total = capture.get(cv2.CAP_PROP_FPS) or USUAL_RATE, capture.get(cv2.CAP_PROP_FRAME_COUNT)
    # OpenCV turns frames itself where it is built to.
    turns = 0 if capture.get(cv2.CAP_PROP_ORIENTATION_AUTO) else int(capture.get(cv2.CAP_PROP_ORIENTATION_META)) // 90
    if not capture.isOpened():
        raise UserError(f'{path} cannot be read as a video')
    with atomic_path(out) as partial:
        video = None
        for frame in sv.get_video_frames_generator(str(path)):
            frame, frames = np.ascontiguousarray(np.rot90(frame, -turns)), frames + 1
            labels = predict(model, frame, slice=args.slice, overlap=args.overlap, score_thr=args.score_thr)
            picture = annotate(model, frame[..., ::-1], labels)[..., ::-1]
            size = picture.shape[1] // 2 * 2, picture.shape[0] // 2 * 2  # some decoders refuse odd sizes
            video = video or cv2.VideoWriter(str(partial), cv2.VideoWriter_fourcc(*'mp4v'), rate, size)
            video.write(np.ascontiguousarray(picture[:size[1], :size[0]]))
        if video is None:
            raise UserError(f'{path} is a video without a frame that can be read')
        video.release()
    # The number in a header may be an estimate.
    return f'{frames} frames' + f'; its header has {total:.0f}, the others cannot be read' * (frames < 0.95 * total)
