"""How coherent the motion of a video is."""

from __future__ import annotations

import json
from typing import Any

import torch
from comfy_api.latest import Input, io

from phys_pipeline.errors import MediaError
from phys_pipeline.media.card import score_plot
from phys_pipeline.media.video import Clip
from phys_pipeline.scoring import score_video

from .clips import clip_of, pictures_of
from .running import Steps, as_image, shown
from .schema import MOTION_SCORE, field, result, schema

CLASSES = ("auto", "translation", "rotation", "scaling")
PRESETS = ("calibrated", "paper")


def loss_of(report: dict[str, Any], motion_class: str) -> float:
    """The composite loss, or that of one class of motion."""
    return float(report["loss"]["composite" if motion_class == "auto" else motion_class])


def report_of(clip: Clip, preset: str = "calibrated", start_frame: int = 0) -> dict[str, Any]:
    """A MOTION_SCORE: phys_pipeline's motion report, and where in the video it starts."""
    return {**score_video(clip, preset=preset).to_dict(), "start_frame": start_frame}


def summary(report: dict[str, Any], score: float) -> str:
    """Two short lines: all that a node has room for."""
    kind = "hardly moves" if report["is_static"] else report["dominant"]
    return f"motion loss {score:.3f}, lower is better\n{kind}, dynamic degree {report['dynamic_degree']:.2f}"


class SpectralScore(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "SpectralScore",
            category="PhysMotion/score",
            search_aliases=["motion score", "physics score", "video quality", "spectral"],
            inputs=[
                field(io.Image, "images", optional=True),
                field(io.Video, "video", optional=True),
                field(io.Float, "fps", default=24.0, min=0.1, max=1000.0, step=1.0),
                field(io.Combo, "motion_class", options=list(CLASSES), default="auto"),
                field(io.Combo, "preset", options=list(PRESETS), default="calibrated"),
                field(io.Int, "start_frame", default=0, min=0, max=1_000_000),
                field(io.Int, "max_frames", default=0, min=0, max=1_000_000),
            ],
            outputs=[
                result(io.Float, "score"),
                result(MOTION_SCORE, "scores"),
                result(io.String, "json"),
                result(io.Image, "plot"),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )

    @classmethod
    def execute(
        cls,
        fps: float,
        motion_class: str,
        preset: str,
        start_frame: int,
        max_frames: int,
        images: torch.Tensor | None = None,
        video: Input.Video | None = None,
    ) -> io.NodeOutput:
        frames, rate, _ = pictures_of(images, video, fps, "Motion Spectral Score")
        chosen = frames[start_frame : start_frame + max_frames if max_frames else None]
        if len(frames) and not len(chosen):
            raise MediaError(f"start_frame is {start_frame} and the video has {len(frames)} frames: start earlier")
        report = report_of(clip_of(chosen, rate, "the video", Steps(len(chosen))), preset, start_frame)
        plot, score = score_plot([report], [f"{report['frames']} frames"]), loss_of(report, motion_class)
        text = json.dumps({"score": score, "motion_class": motion_class, **report}, indent=2)
        return io.NodeOutput(score, report, text, as_image(plot), ui=shown(cls, summary(report, score), plot))
