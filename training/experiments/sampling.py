"""Videos of one column: every prompt from its own fixed noise, with an adapter, without, or the best of several."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

from phys_pipeline.adapters import load_adapter, pipeline_adapters_at, unload_adapter
from phys_pipeline.atomic import atomic_file
from phys_pipeline.families import LoadedModel, load_model
from phys_pipeline.media import Video, write_video
from phys_pipeline.pipelines.best import Candidate, judged
from phys_pipeline.scoring import score_video
from training.evaluate_tiny import generate
from training.experiments.world import CRF, Asked

MANIFEST = "manifest.jsonl"
_ADAPTER = "experiment"
_STEP = 3  # passes of a plain training step


def noise_seed(prompt: str, seed: int, candidate: int = 0) -> int:
    """Seed of the start noise: of the prompt's id and the run's seed alone, so the same in every column."""
    return int.from_bytes(hashlib.sha256(f"{prompt}:{seed}:{candidate}".encode()).digest()[:7], "little")


@lru_cache(maxsize=1)
def base_model(source: str) -> LoadedModel:
    """The base model's pipeline, loaded once per process."""
    loaded = load_model(source)
    loaded.pipeline.set_progress_bar_config(disable=True)
    return loaded


def step_passes(objective: Sequence[str]) -> int:
    """Passes through the network that one clip takes in a training step; a backward pass counts twice.

    Three, and for a preference five more: the corrupted copy's with gradients, and both clips' through the frozen model.
    """
    return _STEP + 5 if "preference" in objective else _STEP


def equal_compute(steps: int, batch: int, prompts: int, sampler: Mapping[str, Any], passes: int = _STEP) -> int:
    """How many videos per prompt cost what training an adapter and making one video per prompt costs; at least 2.

    Counted in passes through the network for one clip: a training step takes ``passes`` (:func:`step_passes`), a sampling step
    one, or two with guidance by a negative prompt.
    """
    guidance = sampler.get("true_cfg_scale", sampler.get("guidance_scale", 1.0))
    one = prompts * int(sampler["num_inference_steps"]) * (2 if guidance > 1 else 1)
    return max(2, 1 + round(passes * steps * batch / one))


def sample_column(
    folder: Path, model: str, prompts: Sequence[Asked], column: str, *, seed: int, sampler: Mapping[str, Any], batch: int,
    adapters: Sequence[tuple[Path, float]] = (), candidates: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Write a video for each prompt and the manifest that `phys-pipeline evaluate` reads; batches that are there are kept.

    ``adapters`` work together, each at its strength. Of several ``candidates`` the one of lowest motion loss that moves is kept
    (:mod:`phys_pipeline.pipelines.best`). The batches are the same in every column, so that equal weights give equal bits.
    """
    loaded = base_model(model)
    settings = {**loaded.family.generation_defaults(loaded.source), **sampler}
    names = {f"{_ADAPTER}{place}": weight for place, (_, weight) in enumerate(adapters)}
    with ExitStack() as stack:
        for name, (adapter, weight) in zip(names, adapters, strict=True):
            load_adapter(loaded.pipeline, adapter, name=name, weight=weight)
            stack.callback(unload_adapter, loaded.pipeline, name)
        if len(names) > 1:  # the last one loaded is alone active
            stack.enter_context(pipeline_adapters_at(loaded.pipeline, names))
        for start in range(0, len(prompts), batch):
            part = prompts[start : start + batch]
            if all((folder / f"{asked.id}.mp4").is_file() for asked in part):
                continue
            takes = [_videos(loaded, part, seed, number, settings) for number in range(candidates)]
            for place, asked in enumerate(part):
                write_video(folder / f"{asked.id}.mp4", _best([take[place] for take in takes]), crf=CRF)
    rows = [
        {"video": f"{a.id}.mp4", "model": column, "id": a.id, "prompt": a.text, "seed": seed, "fps": settings["fps"], **a.labels}
        for a in prompts
    ]
    with atomic_file(folder / MANIFEST) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"videos": len(rows)}


def _videos(loaded: LoadedModel, part: Sequence[Asked], seed: int, number: int, settings: dict[str, Any]) -> list[Video]:
    noise = [noise_seed(asked.id, seed, number) for asked in part]
    clips = generate(loaded.pipeline, [asked.text for asked in part], noise, settings, batch=len(part))
    return [Video.from_tensor(clip, fps=settings["fps"]) for clip in clips]


def _best(takes: Sequence[Video]) -> Video:
    if len(takes) == 1:
        return takes[0]
    reports = [score_video(video) for video in takes]
    found = [Candidate(n, float(r.loss["composite"]), float(r.dynamic_degree)) for n, r in enumerate(reports)]
    return takes[judged(found)[0]]
