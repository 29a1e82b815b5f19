"""Made-up rows of an evaluation for the tests of reports: values that a test can choose, everything else plausible."""

from __future__ import annotations

from typing import Any

import numpy as np

from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.rows import Row

RUN: dict[str, Any] = {
    "date": "2026-11-28T10:00:00+00:00",
    "versions": {"phys-pipeline": "0.1.0", "numpy": "2.0"},
    "device": "cpu",
    "protocol": "fixed",
    "seed": 0,
    "command": "phys-pipeline evaluate manifest.json",
    "prompts": {"set": "made up", "split": "made-up split"},
}


def info(key: str, direction: str = "up", **changes: Any) -> MetricInfo:
    settings = {"label": key.replace("_", " ").capitalize(), "unit": "", "groups": ("motion",), "about": f"{key}, made up"}
    return MetricInfo(key=key, direction=direction, **{**settings, **changes})  # type: ignore[arg-type]


INFOS = (
    info("plausibility", decimals=3, low=0.0, high=1.0),
    info("clip_temporal", low=-100.0, high=100.0, groups=("paper",)),
    info("warping_error", "down", decimals=4, low=0.0, groups=("paper",)),
    info("flow_score", "neutral", low=0.0, groups=("paper",)),
    info("dynamic_degree", "neutral", low=0.0, high=1.0),
    info("active_share", "neutral", low=0.0, high=1.0),
    info("temporal_energy", "neutral", decimals=3, low=0.0),
    info("sim2_residual", "down", decimals=3, low=0.0),
)
COLUMNS = (
    Column("baseline", "Hunyuan-Baseline", "baseline", "HunyuanVideo"),
    Column("ours", "LoRA ours", "ours", "HunyuanVideo", adapter="ours.safetensors", lora="rank 16", loss="spectral 0.1"),
)


def row(model: str, clip: str, metric: str, value: float | None, seed: int | None = 0, **changes: Any) -> Row:
    settings = {
        "status": "skipped" if value is None else "ok",
        "reason": "nothing moves" if value is None else "",
        "backend": "" if value is None else f"{metric} 1",
        "prompt": f"a made-up prompt, {clip}",
        "width": 64, "height": 48, "frames": 16, "fps": 8.0,
    }  # fmt: skip
    return Row(f"{model}/{clip}#{seed}", clip, model, seed, metric, value, **{**settings, **changes})


def column_rows(model: str, values: dict[str, Any], labels: Any = None, **changes: Any) -> list[Row]:
    """Rows of ``values[metric] = [one value for each clip]``; ``labels(index)`` are a clip's labels."""
    return [
        row(model, f"p{index:03d}", metric, value, labels=labels(index) if labels else {}, **changes)
        for metric, numbers in values.items()
        for index, value in enumerate(numbers)
    ]


def plausible_values(n: int, motion: float = 1.0, seed: int = 0, noise: int = 0) -> dict[str, list[float]]:
    """Values of ``n`` clips with ``motion`` left: 1 moves as the baseline, 0 stands still and wins what a still clip wins."""
    rng = np.random.default_rng(seed)
    speed = rng.gamma(4.0, 0.5, n)
    moves = motion * speed * np.random.default_rng(100 + noise).normal(1.0, 0.05, n)
    return {
        "plausibility": (rng.beta(6, 3, n) * min(1.0, 0.2 + motion)).tolist(),
        "clip_temporal": (100.0 - 0.3 * moves / speed.mean() * rng.uniform(0.5, 1.5, n)).tolist(),
        "warping_error": (1.2e-4 + 4e-4 * moves * rng.uniform(0.5, 1.5, n)).tolist(),
        "flow_score": moves.tolist(),
        "dynamic_degree": (moves > 1.0).astype(float).tolist(),
        "active_share": np.clip(0.5 + 0.4 * moves / speed, 0, 1).tolist() if motion else [0.0] * n,
        "temporal_energy": (0.2 * moves).tolist(),
        "sim2_residual": (0.05 + 0.1 * rng.uniform(size=n)).tolist(),
    }
