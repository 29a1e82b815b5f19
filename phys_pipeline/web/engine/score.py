"""A visitor's video: scores, the pictures that explain them, and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from phys_pipeline.media import Video, write_video
from phys_pipeline.media.events import find_events
from phys_pipeline.media.scaling import scaled_while_reading
from phys_pipeline.media.spectra import PlanePicture, draw_centroid, draw_plane
from phys_pipeline.media.summary import describe_motion
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.scoring import check_measurable, score_file, score_video, scored_comparison
from phys_pipeline.spectral import MotionReport
from phys_pipeline.spectral.planes import MotionPlanes, Plane, centroid_over_time, motion_planes
from phys_pipeline.spectral.report import ANALYSIS_FPS, analysis_size
from phys_pipeline.spectral.threads import one_torch_thread
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.player import read_upload
from phys_pipeline.web.engine.runs import Run, Runs
from phys_pipeline.web.engine.settings import AppSettings

KIND = "score"
CLIPS = Path(__file__).parents[3] / "samples" / "clips"  # in a checkout
PICTURES = (
    ("translation.png", "energy over temporal frequency and spatial frequency along the motion"),
    ("rotation.png", "energy over temporal frequency and angular harmonic m"),
    ("scaling.png", "energy over temporal frequency and log-radius harmonic nu"),
    ("centroid.png", "radial centroid of each frame's spectrum over time"),
)
_WINDOW = 16  # frames of the window that the planes show
_MOST_CENTROID = 240  # frames of the curve over time
_FEW_WINDOWS = 2


def synthetic_samples() -> dict[str, Callable[[], Video]]:
    """Clips whose motion is known, made when they are asked for."""

    def clip(**motion: Any) -> Video:
        return Video.from_tensor(textured_clip(32, 128, 128, seed=3, **motion).video, fps=12.0)

    def flashing() -> Video:
        video = clip(rotation=0.08)
        frames = video.frames.copy()
        frames[10] = np.clip(frames[10] * 1.35, 0, 255).astype(np.uint8)
        return Video(frames, video.timestamps, video.fps)

    def shaking() -> Video:
        wobble = np.random.default_rng(0).integers(-5, 6, (32, 2))
        whole = textured_clip(1, 144, 144, seed=3).video[:, 0]
        views = [whole[:, 8 + y : 136 + y, 8 + x : 136 + x] for y, x in wobble.tolist()]
        return Video.from_tensor(torch.stack(views, dim=1), fps=12.0)

    return {
        "known motion: shift to the right": lambda: clip(velocity=(1.5, 0.0)),
        "known motion: clockwise turn": lambda: clip(rotation=0.08),
        "known motion: zoom in": lambda: clip(zoom=0.02),
        "broken: clockwise turn with a flash": flashing,
        "broken: random shaking": shaking,
    }


def sample_names() -> list[str]:
    """What can be scored without an upload: real clips where there is a checkout, and clips of known motion."""
    real = sorted(path.name for path in CLIPS.glob("*") if path.suffix in (".gif", ".webm", ".mp4")) if CLIPS.is_dir() else []
    return [*synthetic_samples(), *real]


def score_sample(runs: Runs, name: str, settings: AppSettings, job: Job) -> Run:
    """Score a sample by its name; MediaError or StopIteration never depend on a path that a visitor typed."""
    made = synthetic_samples()
    if name not in made:
        return score_upload(runs, CLIPS / next(known for known in sample_names() if known == name), name, settings, job)
    video = made[name]()
    return score_clip(runs, Video(video.frames, video.timestamps, video.fps, name), (video.height, video.width), [], job)


def score_upload(runs: Runs, path: Path, name: str, settings: AppSettings, job: Job) -> Run:
    """Score a file that its owner calls ``name``: within the limits with the numbers of ``phys-pipeline score``."""
    video, size, notes = read_upload(path, name, settings)
    return score_clip(
        runs, video, size, notes, job, lambda: score_file(path, duration=settings.max_seconds, max_frames=settings.max_frames)
    )


def score_clip(
    runs: Runs, video: Video, size: tuple[int, int], notes: list[str], job: Job, scored: Callable[[], MotionReport] | None = None
) -> Run:
    """Score a video that was read, draw its pictures and write all into a run.

    Args:
        size: the clip's own (height, width).
        scored: makes the report; default: of ``video``.
    """
    job.report("scoring the motion")
    check_measurable(video.source or "the video", len(video), *size)
    found = scored() if scored is not None else score_video(video, original_size=size)
    report = {**found.to_dict(), "source": video.source}
    job.report("looking for flashes and cuts")
    events = find_events(video)
    run = runs.new()
    job.report("drawing the spectra")
    draw_pictures(run, video, report)
    job.report("writing the video")
    write_video(run.path("video.mp4"), video)
    write_video(run.path("scored.mp4"), scored_comparison([video], [report], [video.source or "video"]))
    summary = describe_motion(report, events)
    run.write_json(
        "scores.json", {"schema": "phys-pipeline/scores", "version": 1, "videos": {"video": report}, "summary": summary}
    )
    run.write({"kind": KIND, "name": video.source, "report": report, "summary": summary, "notes": [*notes, *_cautions(report)]})
    return run


def downloads(run: Run) -> list[Path]:
    """Files of a scored video that a visitor may keep."""
    return [run.path(name) for name in ("scored.mp4", "scores.json", *(name for name, _ in PICTURES)) if run.path(name).is_file()]


def draw_pictures(run: Run, video: Video, report: Mapping[str, Any]) -> None:
    """Planes of the window that moves most, and the radial centroid of the whole clip."""
    step = max(1, min(round(video.fps / ANALYSIS_FPS), len(video) // _WINDOW))
    size = analysis_size(video.height, video.width)
    fps = video.fps / step
    frames = video.frames[::step][:_MOST_CENTROID]
    small = np.stack([scaled_while_reading(frame, *size) for frame in frames])
    pixels = torch.from_numpy(small).permute(3, 0, 1, 2).float() / 255
    timeline = report["timeline"]
    busiest = max(timeline, key=lambda window: window["dynamic_degree"])
    start = min(round(busiest["start_s"] * fps), max(0, pixels.shape[1] - min(_WINDOW, pixels.shape[1])))
    with one_torch_thread():
        planes = motion_planes(pixels[:, start : start + _WINDOW])
        centroid = centroid_over_time(pixels).numpy()
    seconds = f"{start / fps:.1f} to {min(start + _WINDOW, pixels.shape[1]) / fps:.1f} s"
    for name, plane in _drawn(planes, busiest, fps, size[1], seconds).items():
        write_video(run.path(name), draw_plane(plane, fps)[None], fps=1)
    write_video(run.path("centroid.png"), draw_centroid(centroid, np.arange(len(centroid)) / fps)[None], fps=1)


def _drawn(planes: MotionPlanes, window: Mapping[str, Any], fps: float, width: int, when: str) -> dict[str, PlanePicture]:
    """The three planes with both lines: the loss's own fit, and the motion that the report measured by registration."""
    x, y = planes.direction
    angle = np.degrees(np.arctan2(y, x))
    along = (window["velocity"]["x_percent_per_s"] * x + window["velocity"]["y_percent_per_s"] * y) * width / 100 / fps
    turning, growing = np.radians(window["rotation_deg_per_s"]) / fps, window["zoom_percent_per_s"] / 100 / fps
    per_second = 100 * fps / width
    unit = 2 * np.pi / planes.period

    def picture(plane: Plane, name: str, columns: str, fitted: str, measured: float, told: str) -> PlanePicture:
        energy, omega_t, places = plane.energy.numpy(), plane.omega_t.numpy(), plane.columns.numpy()
        title = f"{name}, {when}"
        return PlanePicture(energy, omega_t, places, plane.slope, title, columns, f"fit: {fitted}", measured, f"measured: {told}")

    return {
        "translation.png": picture(
            planes.translation, "Translation", f"frequency along {angle:.0f}° (0: right, 90: down), rad/pixel",
            f"{-planes.translation.slope * per_second:.1f} % of the width/s", -along, f"{along * per_second:.1f} %",
        ),
        "rotation.png": picture(
            planes.rotation, "Rotation", "angular harmonic m", f"{-np.degrees(planes.rotation.slope) * fps:+.0f} degrees/s",
            -turning, f"{window['rotation_deg_per_s']:+.0f}",
        ),
        "scaling.png": picture(
            planes.scaling, "Zoom", "log-radius harmonic nu", f"{planes.scaling.slope / unit * fps * 100:+.0f} %/s",
            growing * unit, f"{window['zoom_percent_per_s']:+.0f} %/s",
        ),
    }  # fmt: skip


def _cautions(report: Mapping[str, Any]) -> list[str]:
    notes = []
    if report["is_static"]:
        notes.append("Nothing moves, so the motion loss is 0. That is no good grade: there is no motion to judge.")
    if len(report["timeline"]) < _FEW_WINDOWS:
        notes.append("The clip is short: there is one window only, so nothing can be said about how the score changes.")
    return notes
