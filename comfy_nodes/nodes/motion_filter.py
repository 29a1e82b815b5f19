"""The best videos of a batch."""

from __future__ import annotations

import json
from typing import Any

import torch
from comfy_api.latest import Input, io
from comfy_execution.graph_utils import ExecutionBlocker

from phys_pipeline.errors import MediaError
from phys_pipeline.pipelines.best import Candidate, judged

from .clips import clip_of, video_of
from .running import Steps, shown
from .schema import MOTION_SCORE, field, result, schema
from .score import CLASSES, loss_of, report_of

KEEP = ("best", "at most max_loss")


class MotionFilter(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MotionFilter",
            category="PhysMotion/score",
            search_aliases=["best of n", "filter", "select video", "rejection sampling"],
            inputs=[
                field(io.Image, "images", optional=True),
                field(io.Video, "videos", optional=True),
                field(io.Int, "frames_per_video", default=0, min=0, max=100_000),
                field(io.Float, "fps", default=24.0, min=0.1, max=1000.0, step=1.0),
                field(io.Combo, "keep", options=list(KEEP), default="best"),
                field(io.Int, "count", default=1, min=1, max=10_000),
                field(io.Float, "max_loss", default=0.5, min=0.0, max=10.0, step=0.05),
                field(io.Combo, "motion_class", options=list(CLASSES), default="auto"),
            ],
            outputs=[
                result(io.Image, "images", is_output_list=True),
                result(io.Video, "videos", is_output_list=True),
                result(MOTION_SCORE, "scores", is_output_list=True),
                result(io.String, "json"),
            ],
            is_input_list=True,
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(
        cls,
        frames_per_video: list[int],
        fps: list[float],
        keep: list[str],
        count: list[int],
        max_loss: list[float],
        motion_class: list[str],
        images: list[torch.Tensor] | None = None,
        videos: list[Input.Video] | None = None,
    ) -> io.NodeOutput:
        batches = _batches(images or [], videos or [], frames_per_video[0], fps[0])
        if not batches:
            raise MediaError("Motion Filter has no video: connect images or videos")
        steps = Steps(sum(len(frames) for frames, _, _ in batches))
        reports = []
        for number, (frames, rate, _) in enumerate(batches, 1):
            try:
                reports.append(report_of(clip_of(frames, rate, f"video {number}", steps)))
            except MediaError as error:
                raise MediaError(f"video {number} of {len(batches)}: {error}") from error
        losses = [loss_of(report, motion_class[0]) for report in reports]
        candidates = [Candidate(i, loss, r["dynamic_degree"]) for i, (loss, r) in enumerate(zip(losses, reports, strict=True))]
        best, marked = judged(candidates)
        order = sorted(range(len(batches)), key=lambda i: (i != best, not marked[i].moves, losses[i]))
        under = [i for i in order if marked[i].moves and losses[i] <= max_loss[0]]
        kept = order[: count[0]] if keep[0] == "best" else under
        about = [
            {
                "video": i + 1,
                "loss": losses[i],
                "dynamic_degree": marked[i].dynamic_degree,
                "moves": marked[i].moves,
                "kept": i in kept,
            }
            for i in order
        ]
        lines = [
            f"video {a['video']}: loss {a['loss']:.3f}{'' if a['moves'] else ', hardly moves'}{', kept' if a['kept'] else ''}"
            for a in about
        ]
        outputs: tuple[list[Any], ...] = (
            [batches[i][0] for i in kept],
            [batches[i][2] or video_of(batches[i][0], batches[i][1]) for i in kept],
            [reports[i] for i in kept],
        )
        none: list[Any] = [ExecutionBlocker(None)]  # what follows is left out if nothing is kept
        return io.NodeOutput(*(given or none for given in outputs), json.dumps(about, indent=2), ui=shown(cls, "\n".join(lines)))


def _batches(
    images: list[torch.Tensor], videos: list[Input.Video], length: int, fps: float
) -> list[tuple[torch.Tensor, float, Input.Video | None]]:
    """Frames, rate and, where it came as one, the VIDEO of every candidate."""
    found: list[tuple[torch.Tensor, float, Input.Video | None]] = []
    for batch in images:
        if length and len(batch) % length:
            raise MediaError(f"{len(batch)} frames can't be cut into videos of {length}: correct frames_per_video")
        found += [(part, fps, None) for part in (batch.split(length) if length else (batch,))]
    for video in videos:
        parts = video.get_components()
        found.append((parts.images, float(parts.frame_rate), video))
    return found
