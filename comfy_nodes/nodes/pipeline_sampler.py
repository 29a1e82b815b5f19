"""Videos from a pipeline handle: the same seeds without and with the adapter."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import comfy.model_management
import comfy.utils
from comfy_api.latest import io
from comfy_execution.graph_utils import ExecutionBlocker

from phys_pipeline.adapters import pipeline_adapters_at
from phys_pipeline.adapters.embedded import demo_pair
from phys_pipeline.errors import AdapterError, ConfigError
from phys_pipeline.media import Video
from phys_pipeline.pipelines import generate
from phys_pipeline.pipelines.ab import available_adapter, encode_prompt

from .clips import image_of
from .pipeline import PipelineHandle
from .sampler import MODES, wanted
from .schema import T2V_PIPELINE, field, result, schema


class StageProgress:
    """phys_pipeline's progress as ComfyUI's bar; raises if the user has interrupted, so that sampling ends within one step."""

    def __init__(self, videos: int) -> None:
        self._videos, self._done, self._total = videos, 0, 0
        self._bar: Any = None

    def __call__(self, stage: str, step: int, total: int) -> None:
        comfy.model_management.throw_exception_if_processing_interrupted()
        if stage == "text":
            return
        if self._bar is None:
            self._bar = comfy.utils.ProgressBar(total * self._videos)
        self._bar.update_absolute(min(self._done + step, total * self._videos))
        if step == total:
            self._done += total


def videos_of(
    handle: PipelineHandle, prompt: str, seed: int, count: int, sides: tuple[str, ...], settings: dict[str, Any]
) -> dict[str, list[Video]]:
    """``count`` videos of each side ("baseline", "physics") from the seeds ``seed``, ``seed + 1``, ...: as the command line
    makes them. Raises AdapterError if physics is asked for and there is no adapter."""
    if "physics" in sides and not handle.adapters:
        raise AdapterError(
            "the pipeline has no adapter for the physics video: put a Pipeline LoRA before it, or set mode to baseline only"
        )
    made: dict[str, list[Video]] = {side: [] for side in sides}
    progress = StageProgress(count * len(sides))
    with handle.on_device() as model:
        conditioning = encode_prompt(model, prompt, **settings)
        with ExitStack() as stack:
            weights = {
                str(stack.enter_context(available_adapter(model, file, f"physmotion_{place}"))): weight
                for place, (file, weight) in enumerate(handle.adapters if "physics" in sides else ())
            }
            for number in range(seed, seed + count):
                for side in sides:
                    with pipeline_adapters_at(model.pipeline, weights if side == "physics" else {}):
                        made[side].append(
                            generate(model, prompt, number, conditioning=conditioning, progress=progress, **settings)
                        )
    return made


class PipelineABSampler(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        size = {"default": 0, "min": 0, "max": 8192}
        return schema(
            "PipelineABSampler",
            category="PhysMotion/sampling",
            search_aliases=["text to video", "compare lora", "best of n"],
            inputs=[
                field(T2V_PIPELINE, "pipeline"),
                field(io.String, "prompt", multiline=True, default=demo_pair()[0]),
                field(io.String, "negative_prompt", multiline=True, default=""),
                field(io.Int, "width", step=16, **size),
                field(io.Int, "height", step=16, **size),
                field(io.Int, "frames", **size),
                field(io.Int, "steps", default=0, min=0, max=1000),
                field(io.Float, "guidance", default=0.0, min=0.0, max=100.0, step=0.1),
                field(io.Float, "true_cfg", default=0.0, min=0.0, max=100.0, step=0.1),
                field(io.Int, "seed", default=0, min=0, max=2**63 - 1, control_after_generate=True),
                field(io.Int, "count", default=1, min=1, max=64),
                field(io.Float, "fps", default=0.0, min=0.0, max=240.0, step=1.0),
                field(io.Combo, "mode", options=list(MODES), default="both"),
            ],
            outputs=[
                result(io.Image, "baseline", is_output_list=True),
                result(io.Image, "physics", is_output_list=True),
                result(io.Float, "fps"),
            ],
        )

    @classmethod
    def execute(
        cls,
        pipeline: PipelineHandle,
        prompt: str,
        negative_prompt: str,
        width: int,
        height: int,
        frames: int,
        steps: int,
        guidance: float,
        true_cfg: float,
        seed: int,
        count: int,
        fps: float,
        mode: str,
    ) -> io.NodeOutput:
        if not prompt.strip():
            raise ConfigError("the prompt is empty: describe the video")
        given = {
            "width": width, "height": height, "num_frames": frames, "num_inference_steps": steps, "guidance_scale": guidance,
            "true_cfg_scale": true_cfg, "fps": fps, "negative_prompt": negative_prompt,
        }  # fmt: skip
        settings = {name: value for name, value in given.items() if value}
        made = videos_of(pipeline, prompt, seed, count, wanted(mode), settings)
        images = {side: [image_of(video) for video in videos] for side, videos in made.items()}
        rate = next(iter(made.values()))[0].fps
        sides = (images.get(side, [ExecutionBlocker(None)]) for side in ("baseline", "physics"))
        return io.NodeOutput(*sides, float(rate))
