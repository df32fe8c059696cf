"""Write the videos of tools/predict.py: each frame with its predictions, and a table of them.

Supervision reads, draws and writes, ``trackers`` follows objects from frame to frame.
"""
import argparse
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
import supervision as sv
from tqdm import tqdm

from ..atomic import atomic_path
from ..errors import UserError
from ..inference import Model, predict
from .pictures import annotate, class_fractions, regions

USUAL_RATE = 25.  # frames/s of a video that gives none
LEAST_SCORE = 0.1  # of objects that a tracker may use to continue a track


def annotate_video(model: Model, path: Path, out: Path, args: argparse.Namespace) -> str:
    """Predict the frames of a video, and write them with what was found (.mp4) and a table of it (.csv).

    Ctrl-C ends the video; the files hold what was done.

    Args:
        model: a detector or a segmentor.
        path: the video.
        out: the video to write; the table has the same name.
        args: flags of the tool: ``every``, ``track``, ``score_thr``, ``slice`` and ``overlap``.

    Returns:
        A line of text that sums the video up.

    Raises:
        UserError: no frame can be read.
    """
    try:
        info = sv.VideoInfo.from_video_path(str(path))
    except Exception as error:  # supervision raises no other class
        raise UserError(f'{path} cannot be read as a video.') from error
    frames = upright_frames(path, args.every)
    first = next(frames, None)
    if first is None:
        raise UserError(f'{path} is a video without a frame that can be read. Give another file.')
    rate = info.fps if math.isfinite(info.fps) and info.fps > 0 else USUAL_RATE
    tracker = _tracker(rate / args.every, args.score_thr) if args.track else None
    frames = tqdm(itertools.chain([first], frames), total=-(-info.total_frames // args.every) or None, desc=path.name,
                  unit='frame')
    done, seen, interruption = 0, Counter(), None
    with ExitStack() as files:
        try:
            for frame in frames:
                found = _find(model, frame, tracker, args)
                picture = annotate(model, frame[..., ::-1], found)[..., ::-1]
                if not done:
                    size = picture.shape[1] // 2 * 2, picture.shape[0] // 2 * 2  # some decoders refuse odd sizes
                    partial = [str(files.enter_context(atomic_path(out.with_suffix(end)))) for end in ('.csv', '.mp4')]
                    table = files.enter_context(sv.CSVSink(partial[0]))
                    video = files.enter_context(sv.VideoSink(partial[1], sv.VideoInfo(*size, rate / args.every)))
                video.write_frame(np.ascontiguousarray(picture[:size[1], :size[0]]))
                seen.update(_write(table, model, found, frame=done * args.every,
                                   second=round(done * args.every / rate, 3)))
                done += 1
        except KeyboardInterrupt as error:
            interruption = error
    if interruption:
        raise interruption
    return f'{done} frames; frames with ' + (
        ', '.join(f'{name}: {number}' for name, number in seen.most_common()) or 'nothing found')


def upright_frames(path: Path, stride: int) -> Iterator[np.ndarray]:
    """Yield every ``stride``-th frame, turned as the file's header says: phones write frames as their sensor lies."""
    capture = cv2.VideoCapture(str(path))
    # OpenCV turns frames itself where it is built to.
    turns = 0 if capture.get(cv2.CAP_PROP_ORIENTATION_AUTO) else int(capture.get(cv2.CAP_PROP_ORIENTATION_META)) // 90
    capture.release()
    for frame in sv.get_video_frames_generator(str(path), stride=stride):
        yield np.ascontiguousarray(np.rot90(frame, -turns))


def _tracker(rate: float, score_thr: float) -> object:
    from trackers import ByteTrackTracker  # an optional package
    return ByteTrackTracker(frame_rate=rate, track_activation_threshold=score_thr, high_conf_det_threshold=score_thr)


def _find(model: Model, frame: np.ndarray, tracker: object, args: argparse.Namespace) -> sv.Detections | np.ndarray:
    """Return the predictions of a frame, of a detector with the numbers of their tracks if there is a tracker."""
    least = min(LEAST_SCORE, args.score_thr) if tracker else args.score_thr
    found = predict(model, frame, slice=args.slice, overlap=args.overlap, score_thr=least)
    if isinstance(found, np.ndarray) or not tracker:
        return found
    found = tracker.update(found)
    return found[(found.tracker_id >= 0) | (found.confidence >= args.score_thr)] if len(found) else found


def _write(table: sv.CSVSink, model: Model, found: sv.Detections | np.ndarray, **place: float) -> list[str]:
    """Write a line for each object, or for each class of a label map its box and its fraction of the pixels.

    Returns:
        The names of the classes in this frame.
    """
    if isinstance(found, np.ndarray):
        fractions, found = class_fractions(found), regions(found, len(model.classes))
        found.data['class_name'] = np.array([model.name(number) for number in found.class_id])
        place['area_fraction'] = fractions[found.class_id].round(6)
    table.append(found, place)
    return sorted(set(found['class_name'])) if len(found) else []
