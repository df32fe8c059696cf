"""Write the videos of tools/predict.py: each frame with its predictions, and a table of them.

Supervision reads, draws and writes, ``trackers`` follows objects from frame to frame.
"""
import argparse
import itertools
import math
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import supervision as sv
from _pictures import annotate, class_fractions, regions

from cvt_dense.errors import UserError
from cvt_dense.fileio import atomic_path
from cvt_dense.inference import Model, predict

USUAL_RATE = 25.  # frames/s of a video that gives none
LEAST_SCORE = 0.1  # of objects that a tracker may use to continue a track


def annotate_video(model: Model, path: Path, out: Path, args: argparse.Namespace) -> tuple[str, str | None, bool]:
    """Predict the frames of a video, and write them with what was found (.mp4) and a table of it (.csv).

    Args:
        model: a detector or a segmentor.
        path: the video.
        out: the video to write; the table has the same name.
        args: flags of the tool: ``every``, ``track``, ``score_thr``, ``slice`` and ``overlap``.

    Returns:
        A line of text that sums the video up, what ended it before its end, and whether that was
        Ctrl-C. The files hold what was done.

    Raises:
        UserError: no frame can be read.
        ValueError, RuntimeError: the first frame cannot be predicted; nothing is written then.
    """
    try:
        info = sv.VideoInfo.from_video_path(str(path))
    except Exception as error:  # supervision raises no other class
        raise UserError(f'{path} cannot be read as a video.') from error
    frames = sv.get_video_frames_generator(str(path), stride=args.every)
    first = next(frames, None)
    if first is None:
        raise UserError(f'{path} is a video without a frame that can be read. Give another file.')
    rate = info.fps if math.isfinite(info.fps) and info.fps > 0 else USUAL_RATE
    expected = -(-max(info.total_frames or 0, 0) // args.every)
    tracker = _tracker(rate / args.every, args.score_thr) if args.track else None
    done, start, reported, ended, interrupted, totals = 0, time.monotonic(), 0., None, False, Counter()
    with ExitStack() as files:
        try:
            for frame in itertools.chain([first], frames):
                found, counts = _find(model, frame, tracker, args)
                elapsed = time.monotonic() - start
                speed = (done + 1) / elapsed
                picture = np.ascontiguousarray(annotate(model, frame[..., ::-1], found)[..., ::-1])
                picture = _title(picture, f'{", ".join(counts.values())}  {speed:.1f} frames/s')
                if not done:
                    size = picture.shape[1] // 2 * 2, picture.shape[0] // 2 * 2  # some decoders refuse odd sizes
                    partial = [str(files.enter_context(atomic_path(out.with_suffix(end)))) for end in ('.csv', '.mp4')]
                    table = files.enter_context(sv.CSVSink(partial[0]))
                    video = files.enter_context(sv.VideoSink(partial[1], sv.VideoInfo(*size, rate / args.every)))
                video.write_frame(picture[:size[1], :size[0]])
                _write(table, model, found, frame=done * args.every, second=round(done * args.every / rate, 3))
                done, totals = done + 1, totals + Counter(counts.keys())
                if elapsed - reported >= 1:
                    reported = elapsed
                    print(f'{path}: frame {done} of {expected or "?"}, {speed:.1f} frames/s, '
                          f'{", ".join(counts.values()) or "nothing"}', flush=True)
        except (KeyboardInterrupt, UserError, ValueError, RuntimeError, OSError, MemoryError) as error:
            if not done:
                raise
            interrupted = isinstance(error, KeyboardInterrupt)
            ended = f'{type(error).__name__} {error}'.strip()
    if ended is None and done < 0.99 * expected - 1:  # the number of some containers is an estimate
        ended = 'the file breaks off'
    summary = f'{done} frames, {done / (time.monotonic() - start):.1f} frames/s; frames with '
    summary += ', '.join(f'{name}: {number}' for name, number in totals.most_common()) or 'nothing found'
    return summary, ended and f'{ended} after {done} of {expected} frames', interrupted


def _tracker(rate: float, score_thr: float) -> object:
    try:
        from trackers import ByteTrackTracker
    except ImportError as error:
        raise UserError('--track needs the package trackers: run "pip install trackers".') from error
    return ByteTrackTracker(frame_rate=rate, track_activation_threshold=score_thr, high_conf_det_threshold=score_thr)


def _find(model: Model, frame: np.ndarray, tracker: object,
          args: argparse.Namespace) -> tuple[sv.Detections | np.ndarray, dict[str, str]]:
    """Return the predictions of a frame as a picture, and a text for each class in it."""
    least = min(LEAST_SCORE, args.score_thr) if tracker else args.score_thr
    found = predict(model, frame, slice=args.slice, overlap=args.overlap, score_thr=least)
    if isinstance(found, np.ndarray):
        fractions = class_fractions(found)
        order = [number for number in fractions.argsort()[::-1] if fractions[number] >= 0.01]
        return found, {model.name(number): f'{model.name(number)} {fractions[number]:.0%}' for number in order}
    if tracker:
        found = tracker.update(found)
        found = found[(found.tracker_id >= 0) | (found.confidence >= args.score_thr)] if len(found) else found
    counts = Counter(model.name(number) for number in found.class_id) if len(found) else {}
    return found, {name: f'{number} {name}' for name, number in counts.items()}


def _title(picture: np.ndarray, text: str) -> np.ndarray:
    size = picture.shape[1::-1]
    scale, thickness = sv.calculate_optimal_text_scale(size), sv.calculate_optimal_line_thickness(size)
    anchor = sv.Point(size[0] / 2, size[1] - 20 * scale)
    return sv.draw_text(picture, text, anchor, sv.Color.WHITE, scale, max(1, thickness // 2), 5,
                        background_color=sv.Color.BLACK)


def _write(table: sv.CSVSink, model: Model, found: sv.Detections | np.ndarray, **place: float) -> None:
    """Write a line for each object, or for each class of a label map its box and its fraction of the pixels."""
    if isinstance(found, np.ndarray):
        fractions, found = class_fractions(found), regions(found, len(model.classes))
        found.data['class_name'] = np.array([model.name(number) for number in found.class_id])
        place['area_fraction'] = fractions[found.class_id].round(6)
    table.append(found, place)
