"""The nodes and the way in for ComfyUI."""

from __future__ import annotations

from comfy_api.latest import ComfyExtension, io

from .demo import EmbeddedDemo
from .hub import AdapterFromHub
from .lora import LoadLoRA
from .motion_filter import MotionFilter
from .pipeline import LoadPipeline, PipelineLoRA
from .pipeline_sampler import PipelineABSampler
from .report import ScoreReport
from .sampler import ABSampler
from .score import SpectralScore
from .video import ScoreOverlay, SideBySide

NODES: tuple[type[io.ComfyNode], ...] = (
    LoadLoRA, AdapterFromHub, ABSampler, LoadPipeline, PipelineLoRA, PipelineABSampler,
    SpectralScore, ScoreOverlay, SideBySide, ScoreReport, MotionFilter, EmbeddedDemo,
)  # fmt: skip


class PhysMotion(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return list(NODES)


async def comfy_entrypoint() -> PhysMotion:
    return PhysMotion()
