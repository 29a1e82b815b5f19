"""A fair comparison of a base model and an adapter: same noise, same prompt embedding, same settings, bit for bit.

The noise is drawn once on the CPU from its own generator, so the same seed gives the same start on every device and nothing
reads or moves the global generator. The adapter is switched, never fused, so that the baseline is exactly the base model.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.adapters import (
    adapter_names,
    adapters_kept,
    load_adapter,
    pipeline_adapter_at,
    transformers_of,
    unload_adapter,
)
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import LoadedModel, as_loaded
from phys_pipeline.media import Video

Progress = Callable[[str, int, int], None]

_TEMPORARY = "phys_pipeline_pair"


@dataclass(frozen=True)
class Pair:
    """Two videos that differ only by the adapter. ``settings`` holds every value that made them."""

    baseline: Video
    physics: Video
    prompt: str
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)


def encode_prompt(pipe: Any, prompt: str, **generation: Any) -> dict[str, Tensor]:
    """What :func:`generate` makes of a prompt before it samples: give it as ``conditioning`` to do without the text encoders."""
    model = as_loaded(pipe)
    return _encode(model, prompt, {**model.family.spec.generation, **model.defaults, **generation}, None)


def generate(
    pipe: Any,
    prompt: str,
    seed: int = 0,
    *,
    progress: Progress | None = None,
    conditioning: Mapping[str, Tensor] | None = None,
    **generation: Any,
) -> Video:
    """One video with the pipeline as it is (whatever adapter is active stays active).

    ``pipe`` is a LoadedModel or a diffusers pipeline. ``generation`` overrides the model's defaults (its
    ``phys_pipeline.json``): num_frames, height, width, fps, num_inference_steps, guidance_scale, negative_prompt,
    max_sequence_length and what else the family's ``spec.generation`` lists. ``progress(stage, step, total)`` is called with the
    stages "text" and "video". ``conditioning`` is what :func:`encode_prompt` returned for this prompt and these settings; the
    pipeline then needs no text encoder. Raises ConfigError for an unknown setting or a size the model can't make, ModelError
    for a prompt or model that gives no usable result.
    """
    model = as_loaded(pipe)
    settings = _settings(model, generation)
    with _quiet_evaluation(model.pipeline):
        conditioning = conditioning or _encode(model, prompt, settings, progress)
        return _sample(model, prompt, conditioning, _noise(model, seed, settings), settings, "video", progress)


def generate_pair(
    pipe: Any,
    prompt: str,
    adapter: str | Path | None = None,
    seed: int = 0,
    *,
    weight: float = 1.0,
    progress: Progress | None = None,
    **generation: Any,
) -> Pair:
    """Baseline (every adapter off) and physics (``adapter`` alone, at ``weight``) from the same noise and prompt embedding.

    ``adapter`` is the name of one that is loaded, or a file, folder or Hub id that is loaded for this call only. With no
    adapter or weight 0 the two videos are bit-equal. The pipeline's adapters are afterwards as they were, also after an
    error or Ctrl-C. Settings, progress (stages "text", "baseline", "physics") and errors as in :func:`generate`, and
    AdapterError for an adapter that doesn't fit.
    """
    model = as_loaded(pipe)
    settings = _settings(model, generation)
    noise = _noise(model, seed, settings)
    with _quiet_evaluation(model.pipeline), available_adapter(model, adapter) as name:
        conditioning = _encode(model, prompt, settings, progress)
        with pipeline_adapter_at(model.pipeline, None):
            baseline = _sample(model, prompt, conditioning, noise, settings, "baseline", progress)
        with pipeline_adapter_at(model.pipeline, name, weight):
            physics = _sample(model, prompt, conditioning, noise, settings, "physics", progress)
    made = {**settings, "adapter": None if adapter is None else str(adapter), "weight": float(weight)}
    return Pair(baseline, physics, prompt, seed, made)


def _settings(model: LoadedModel, generation: Mapping[str, Any]) -> dict[str, Any]:
    allowed = model.family.spec.generation
    for key in generation:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(allowed))}"
            raise ConfigError(f"unknown generation setting {key!r}: {hint}")
    given = {key: value for key, value in generation.items() if value is not None}
    settings = {**allowed, **model.defaults, **given}
    model.family.check_size(settings["num_frames"], settings["height"], settings["width"], model.pipeline.vae)
    if not 1 <= settings["num_inference_steps"] <= 1000:
        raise ConfigError(f"num_inference_steps is {settings['num_inference_steps']}: use at least 1 and at most 1000")
    if not 0 < settings["fps"] <= 1000:
        raise ConfigError(f"fps is {settings['fps']}: use a positive number up to 1000")
    for key, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} is {value}: use a finite number")
    return settings


def _noise(model: LoadedModel, seed: int, settings: Mapping[str, Any]) -> Tensor:
    """Start latents (1, C, T', H', W'), float32 on the CPU."""
    if not -(2**63) <= seed < 2**64:
        raise ConfigError(f"seed {seed} is too large: use a whole number of at most 64 bits")
    shape = (1, *model.family.noise_shape(settings, model.pipeline))
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed), dtype=torch.float32)


def _encode(model: LoadedModel, prompt: str, settings: Mapping[str, Any], progress: Progress | None) -> dict[str, Tensor]:
    """Pipeline arguments with the prompt's embeddings, and the negative prompt's if it will be used."""
    texts, done = 1 + model.family.uses_negative_prompt(settings), iter(range(1, 3))
    _report(progress, "text", 0, texts)
    return model.family.sampling_conditioning(model, prompt, settings, lambda: _report(progress, "text", next(done), texts))


def _sample(
    model: LoadedModel,
    prompt: str,
    conditioning: Mapping[str, Tensor],
    noise: Tensor,  # (1, C, T', H', W')
    settings: Mapping[str, Any],
    stage: str,
    progress: Progress | None,
) -> Video:
    total = settings["num_inference_steps"]

    arguments = model.family.sampling_arguments(conditioning, settings, noise.clone())
    _report(progress, stage, 0, total)
    with _steps_reported(model.pipeline, arguments, lambda done: _report(progress, stage, done, total)):
        frames = model.pipeline(**arguments, output_type="pt").frames[0]  # (T, 3, H, W)
    if not torch.isfinite(frames).all():
        raise ModelError("the model returned NaN: load it in bfloat16 or float32, and lower the adapter's weight if one is on")
    return Video.from_tensor(frames.permute(1, 0, 2, 3).float().cpu(), fps=settings["fps"], source=prompt)


@contextmanager
def _steps_reported(pipeline: Any, arguments: dict[str, Any], report: Callable[[int], None]) -> Iterator[None]:
    """Call ``report`` with the number of steps that are done: by the pipeline's own callback, put into its call's ``arguments``,
    or where it has none by what its scheduler does."""

    def step_ended(_: Any, step: int, __: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        report(step + 1)
        return tensors

    if "callback_on_step_end" in inspect.signature(pipeline.__call__).parameters:
        arguments |= {"callback_on_step_end": step_ended, "callback_on_step_end_tensor_inputs": ["latents"]}
        yield
        return
    scheduler, count = pipeline.scheduler, itertools.count(1)
    step = scheduler.step

    def counted(*values: Any, **named: Any) -> Any:
        result = step(*values, **named)
        report(next(count))
        return result

    scheduler.step = counted
    try:
        yield
    finally:
        del scheduler.step  # the class's own is seen again


@contextmanager
def available_adapter(model: LoadedModel, adapter: str | Path | None, name: str = _TEMPORARY) -> Iterator[str | None]:
    """The name of a loaded adapter, loading a file for the time being if need be, as ``name``."""
    transformers = transformers_of(model.pipeline)
    if adapter is None or any(str(adapter) in adapter_names(transformer) for transformer in transformers):
        yield None if adapter is None else str(adapter)
        return
    with ExitStack() as stack:
        for transformer in transformers:
            stack.enter_context(adapters_kept(transformer))
        try:
            load_adapter(model.pipeline, adapter, name=name)
            yield name
        finally:
            unload_adapter(model.pipeline, name)


@contextmanager
def _quiet_evaluation(pipeline: Any) -> Iterator[None]:
    """No progress bars, no dropout; both return to what they were."""
    bar = dict(getattr(pipeline, "_progress_bar_config", {}))
    training = [m for m in pipeline.components.values() if isinstance(m, torch.nn.Module) and m.training]
    pipeline.set_progress_bar_config(**{**bar, "disable": True})
    for module in training:
        module.eval()
    try:
        yield
    finally:
        pipeline.set_progress_bar_config(**bar)
        for module in training:
            module.train()


def _report(progress: Progress | None, stage: str, step: int, total: int) -> None:
    if progress is not None:
        progress(stage, step, total)
