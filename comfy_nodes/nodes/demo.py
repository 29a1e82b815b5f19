"""The tiny model that comes with the package: something to look at within a minute, without a download."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from comfy_api.latest import io

from phys_pipeline.adapters.embedded import demo_pair, embedded_adapters
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.pipelines.best import Candidate, judged
from phys_pipeline.scoring import score_video

from .adapters import NONE, changed, check_name, chosen, lora_names
from .clips import image_of
from .pipeline import pipeline_handle
from .pipeline_sampler import videos_of
from .running import shown
from .schema import MOTION_ADAPTER, field, result, schema

EMBEDDED = "embedded"  # in the list of files: the adapter that comes with the package; none if it is of an older embedded model


class EmbeddedDemo(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        prompt, seed = demo_pair()
        return schema(
            "EmbeddedDemo",
            category="PhysMotion",
            search_aliases=["demo", "example", "tiny"],
            inputs=[
                field(io.String, "prompt", default=prompt),
                field(io.Int, "seed", default=seed, min=0, max=2**31, control_after_generate=True),
                field(io.Int, "steps", default=20, min=1, max=100),
                field(io.Int, "count", default=3, min=1, max=16),
                field(io.Combo, "lora_name", options=[EMBEDDED, *lora_names()], default=EMBEDDED),
                field(MOTION_ADAPTER, "adapter", optional=True),
            ],
            outputs=[result(io.Image, "first"), result(io.Image, "second"), result(io.Float, "fps"), result(io.String, "about")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, lora_name: str | None = None) -> bool | str:
        return lora_name == EMBEDDED or check_name(lora_name)

    @classmethod
    def fingerprint_inputs(cls, lora_name: str | None = None, **_: Any) -> str:
        return EMBEDDED if lora_name == EMBEDDED else changed(lora_name)

    @classmethod
    def execute(
        cls, prompt: str, seed: int, steps: int, count: int, lora_name: str, adapter: dict[str, Any] | None = None
    ) -> io.NodeOutput:
        handle, settings = pipeline_handle("tiny", "fp32", None, "none", False), {"num_inference_steps": steps}
        if adapter is None and lora_name == EMBEDDED:
            path = next((embedded.file for embedded in embedded_adapters().values()), None)
        else:
            path = None if adapter is None and lora_name == NONE else chosen(lora_name, adapter)
        if path is not None:
            handle = replace(handle, adapters=((path, 1.0),))
            made = videos_of(handle, prompt, seed, 1, ("baseline", "physics"), settings)
            first, second = made["baseline"][0], made["physics"][0]
            name = path.parent.name if path.name == WEIGHTS_FILE else path.name
            about = f"first: without the adapter\nsecond: with {name}"
        else:
            videos = videos_of(handle, prompt, seed, count, ("baseline",), settings)["baseline"]
            reports = [score_video(video) for video in videos]
            place, _ = judged([Candidate(seed + i, r.loss["composite"], r.dynamic_degree) for i, r in enumerate(reports)])
            first, second = videos[0], videos[place]
            about = f"first: seed {seed}\nsecond: seed {seed + place}, best of {count}"
        return io.NodeOutput(image_of(first), image_of(second), float(first.fps), about, ui=shown(cls, about))
