"""Scores in the picture, and two videos in one."""

from __future__ import annotations

from typing import Any

import comfy.model_management
import torch
from comfy_api.latest import Input, io

from phys_pipeline.errors import MediaError
from phys_pipeline.media.card import POSITIONS, STYLES, draw_scores
from phys_pipeline.media.compare import MODES, Compared
from phys_pipeline.media.overlay import Overlaid
from phys_pipeline.media.video import Clip

from .clips import clip_of, image_of, pictures_of, video_of
from .running import Steps
from .schema import MOTION_SCORE, field, result, schema

BESIDE = "beside the picture"
LENGTHS = ("hold last", "trim", "error")


class ScoreOverlay(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "ScoreOverlay",
            category="PhysMotion/video",
            search_aliases=["overlay", "draw scores", "hud"],
            inputs=[
                field(io.Image, "images"),
                field(MOTION_SCORE, "scores"),
                field(io.Combo, "style", options=[BESIDE, *STYLES], default=BESIDE),
                field(io.Combo, "position", options=list(POSITIONS), default="top right"),
                field(io.Boolean, "graph", default=True),
                field(io.String, "label", default=""),
                field(io.Float, "size", default=18.0, min=4.0, max=100.0, step=1.0),
                field(io.Float, "opacity", default=0.8, min=0.0, max=1.0, step=0.05),
            ],
            outputs=[result(io.Image, "images")],
        )

    @classmethod
    def execute(
        cls,
        images: torch.Tensor,
        scores: dict[str, Any],
        style: str,
        position: str,
        graph: bool,
        label: str,
        size: float,
        opacity: float,
    ) -> io.NodeOutput:
        steps, first = Steps(len(images)), int(scores.get("start_frame", 0))
        clip = clip_of(images, scores["fps"], label, steps)
        if style == BESIDE:
            return io.NodeOutput(image_of(Overlaid(clip, scores, title=label or "Motion report", first=first)))
        drawn = draw_scores(
            images, scores, style=style, position=position, graph=graph, label=label, size=size, opacity=opacity, first=first,
            each=steps,
        )  # fmt: skip
        return io.NodeOutput(drawn.to(comfy.model_management.intermediate_device()))


class SideBySide(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "SideBySide",
            category="PhysMotion/video",
            search_aliases=["compare video", "video comparer", "wipe", "difference"],
            inputs=[
                field(io.Image, "images_a", optional=True),
                field(io.Image, "images_b", optional=True),
                field(io.Video, "video_a", optional=True),
                field(io.Video, "video_b", optional=True),
                field(io.String, "label_a", default="Baseline"),
                field(io.String, "label_b", default="Physics"),
                field(io.Float, "fps", default=24.0, min=0.1, max=1000.0, step=1.0),
                field(io.Combo, "layout", options=list(MODES), default="horizontal"),
                field(io.Combo, "length", options=list(LENGTHS), default="hold last"),
                field(io.Int, "gap", default=4, min=0, max=1000),
                field(MOTION_SCORE, "scores_a", optional=True),
                field(MOTION_SCORE, "scores_b", optional=True),
            ],
            outputs=[result(io.Video, "video"), result(io.Image, "images")],
        )

    @classmethod
    def execute(
        cls,
        label_a: str,
        label_b: str,
        fps: float,
        layout: str,
        length: str,
        gap: int,
        images_a: torch.Tensor | None = None,
        images_b: torch.Tensor | None = None,
        video_a: Input.Video | None = None,
        video_b: Input.Video | None = None,
        scores_a: dict[str, Any] | None = None,
        scores_b: dict[str, Any] | None = None,
    ) -> io.NodeOutput:
        frames_a, rate_a, audio = pictures_of(images_a, video_a, fps, "a of Side-by-Side Video")
        frames_b, rate_b, _ = pictures_of(images_b, video_b, fps, "b of Side-by-Side Video")
        pairs = [(frames_a, rate_a, "a"), (frames_b, rate_b, "b")]
        seconds = [clip_of(*pair).duration for pair in pairs]
        if length == "error" and abs(seconds[0] - seconds[1]) > 0.5 / max(rate_a, rate_b):
            raise MediaError(
                f"a has {seconds[0]:.2f} s and b {seconds[1]:.2f} s: make them equal, or set length to hold last or trim"
            )
        if length == "trim":
            pairs = [(frames[: max(1, round(min(seconds) * rate))], rate, name) for frames, rate, name in pairs]
        sides: list[Clip] = [clip_of(*pair) for pair in pairs]
        labels = [label_a, label_b]
        if layout in ("horizontal", "vertical"):
            for place, scores in enumerate((scores_a, scores_b)):
                if scores is not None:
                    sides[place] = Overlaid(
                        sides[place], scores, title=labels[place] or "Motion report", first=int(scores.get("start_frame", 0))
                    )
                    labels[place] = ""
        both = Compared(sides[0], sides[1], mode=layout, labels=(labels[0], labels[1]), gap=gap)
        images = image_of(both, Steps(len(both)))
        return io.NodeOutput(video_of(images, both.fps, audio), images)
