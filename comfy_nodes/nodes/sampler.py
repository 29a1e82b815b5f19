"""Baseline and physics from one noise, on ComfyUI's own models."""

from __future__ import annotations

from typing import Any

import comfy.sample
import comfy.samplers
import torch
from comfy_api.latest import io
from comfy_execution.graph_utils import ExecutionBlocker
from comfy_extras.nodes_custom_sampler import BasicGuider, CFGGuider, SamplerCustomAdvanced

from phys_pipeline.errors import ConfigError

from .schema import field, result, schema

MODES = ("both", "physics only", "baseline only")


def wanted(mode: str) -> tuple[str, ...]:
    """The sides that a mode makes."""
    return ("baseline", "physics") if mode == "both" else (mode.removesuffix(" only"),)


class _SharedNoise:
    """ComfyUI's noise of a seed, made once and given to every sampler that asks."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._noise: torch.Tensor | None = None

    def generate_noise(self, latent: dict[str, Any]) -> torch.Tensor:
        if self._noise is None:
            self._noise = comfy.sample.prepare_noise(latent["samples"], self.seed, latent.get("batch_index"))
        return self._noise.clone()


class ABSampler(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "ABSampler",
            category="PhysMotion/sampling",
            search_aliases=["compare lora", "ab test", "sampler"],
            inputs=[
                field(io.Model, "baseline", lazy=True),
                field(io.Model, "physics", lazy=True),
                field(io.Conditioning, "positive"),
                field(io.Int, "noise_seed", default=0, min=0, max=0xFFFFFFFFFFFFFFFF, control_after_generate=True),
                field(io.Float, "cfg", default=1.0, min=0.0, max=100.0, step=0.1),
                field(io.Sampler, "sampler"),
                field(io.Sigmas, "sigmas"),
                field(io.Latent, "latent"),
                field(io.Combo, "mode", options=list(MODES), default="both"),
                field(io.Conditioning, "negative", optional=True),
            ],
            outputs=[result(io.Latent, "baseline_latent"), result(io.Latent, "physics_latent")],
        )

    @classmethod
    def check_lazy_status(cls, mode: str = "both", **inputs: Any) -> list[str]:
        return [side for side in wanted(mode) if inputs.get(side) is None]

    @classmethod
    def execute(
        cls,
        positive: Any,
        noise_seed: int,
        cfg: float,
        sampler: Any,
        sigmas: torch.Tensor,
        latent: dict[str, Any],
        mode: str,
        baseline: Any = None,
        physics: Any = None,
        negative: Any = None,
    ) -> io.NodeOutput:
        if negative is None and cfg != 1.0:
            raise ConfigError(f"cfg is {cfg:g} without a negative prompt: connect one, or set cfg to 1")
        noise, models, made = _SharedNoise(noise_seed), {"baseline": baseline, "physics": physics}, {}
        for side in wanted(mode):
            if negative is None:
                guider = BasicGuider.execute(models[side], positive).result[0]
            else:
                guider = CFGGuider.execute(models[side], positive, negative, cfg).result[0]
            made[side] = SamplerCustomAdvanced.execute(noise, guider, sampler, sigmas, latent).result[0]
        return io.NodeOutput(*(made.get(side, ExecutionBlocker(None)) for side in ("baseline", "physics")))
