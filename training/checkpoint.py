"""Checkpoints that continue a run bit for bit: trained weights, optimiser and step. Random numbers follow the step."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import ConfigError
from phys_pipeline.families.sources import description
from training.config import TrainConfig, load_config
from training.optimizer import WeightAverage
from training.sharding import placed_like
from training.tracking import RUN_KEY_FILE
from training.weights import load_trained, result_path

log = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)")
_FIXED = ("family", "expert", "rank", "alpha", "lora_targets")  # a checkpoint fits no other adapter
_MEANING = (  # what the adapter is said to be trained with: another value would make its record untrue
    "model", "seed", "frames", "height", "width", "fps", "frame_extraction", "samples_per_clip", "window_stride",
    "max_clip_seconds", "repeated_frames", "vae_precision", "vae_tiling",
    "motion_weight", "motion_space", "motion_form", "motion_preset",
    "motion_overrides", "objective", "anchored_weight", "repaired_weight", "motion_terms", "motion_sigma", "motion_crop_frames",
    "motion_crop_size", "repaired_sigma_max",
    "coherence_tau", "coherence_strength", "coherence_gate", "ltd_strength",
    "preference_weight", "preference_form", "preference_beta", "preference_margin", "preference_space",
    "preference_corruptions", "preference_by_score",
    "flow_weight", "flow_sigma_max", "flow_estimator",
    "sampled_weight", "sampled_steps", "sampled_levels", "sampled_keep",
    "buckets", "base_quantization", "sigma_max", "sigma_law", "shift", "guidance", "caption_dropout",
)  # fmt: skip
_EXACT = (  # another value is allowed, but the run is then not the one that would have been
    "train_batch_size", "gradient_accumulation_steps", "max_train_steps", "learning_rate", "lr_warmup_steps", "weight_decay",
    "max_grad_norm", "precision", "optimizer", "ema_decay", "parallel", "flow_smoothness",
)  # fmt: skip


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on: optimiser steps done, and what the checkpoint's run was made of."""

    step: int
    folder: Path
    config: dict[str, Any]
    data: str | None = None  # the dataset's digest
    processes: int | None = None


def step_of(folder: Path) -> int | None:
    """N of a folder named checkpoint-N, None for any other name."""
    match = _NAME.fullmatch(folder.name)
    return int(match.group(1)) if match else None


def list_checkpoints(output_dir: str | Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    root = Path(output_dir)
    found = [p for p in root.glob("checkpoint-*") if p.is_dir() and step_of(p) is not None and (p / "state.json").is_file()]
    return sorted(found, key=lambda p: step_of(p) or 0)


def finished_run(config: TrainConfig, data: str) -> Path | None:
    """The result of a finished run of the same settings, data (the dataset's digest) and base model, if `resume` is true."""
    root = Path(config.output_dir)
    files = (root / "config.yaml", root / "provenance.json", result_path(root, config))
    if config.resume != "true" or not all(file.exists() for file in files):
        return None
    try:
        same = load_config(files[0]).to_dict() | {"resume": "true", "push_to_hub": config.push_to_hub} == config.to_dict()
        record = json.loads(files[1].read_text(encoding="utf-8"))
    except (ConfigError, json.JSONDecodeError):
        return None
    same = same and "seconds" in record and record.get("data") == data
    return files[2] if same and record.get("revision") == description(config.model).get("revision") else None


def is_fresh(config: TrainConfig, resumed: Resumed | None) -> bool:
    """Whether `output_dir` gets a new run: one that starts at step 0, or from a checkpoint of another folder."""
    return resumed is None or resumed.folder.resolve().parent != Path(config.output_dir).resolve()


def refuse_unfinished(config: TrainConfig) -> None:
    """A fresh run must not replace the checkpoints of an unfinished one."""
    checkpoints = list_checkpoints(config.output_dir)
    if checkpoints and not (Path(config.output_dir) / "provenance.json").is_file():
        raise ConfigError(
            f"{config.output_dir} holds {checkpoints[-1].name} of an unfinished run: resume=true continues it; "
            "to start afresh choose another output_dir or delete it"
        )


def clear_output(config: TrainConfig) -> None:
    """Make room for a fresh run, once its data is ready: the records of a finished run are replaced."""
    refuse_unfinished(config)
    for folder in list_checkpoints(config.output_dir):
        shutil.rmtree(folder, ignore_errors=True)
    root = Path(config.output_dir)
    for name in ("validation", "ema", "comfyui", "tensorboard"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("provenance.json", "log.jsonl", RUN_KEY_FILE):
        (root / name).unlink(missing_ok=True)


def run_states(optimizer: Any, scaler: Any = None, average: WeightAverage | None = None) -> dict[str, Any]:
    """What a run carries from step to step beside the trained weights. Tensors may be sharded: `sharding.whole` gathers them."""
    return {
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else None,
        "average": average.average if average is not None else None,
    }


def save_checkpoint(
    config: TrainConfig,
    step: int,
    data: str,
    processes: int,
    save_weights: Callable[[Path], Any],
    states: dict[str, Any],
) -> Path:
    """Write `checkpoint-<step>` whole or not at all, then delete the oldest beyond `checkpoint_limit`.

    Those of later steps go too: the run went on from further back, and they are not of it.

    `save_weights(folder)` writes what is trained, so that every checkpoint can be used like a finished run; `states` are those of
    `run_states`, made whole.
    """
    final = Path(config.output_dir) / f"checkpoint-{step}"
    with atomic_folder(final) as folder:
        save_weights(folder)
        torch.save(states, folder / "optimizer.pt")
        state = {"step": step, "data": data, "processes": processes, "config": config.to_dict()}
        (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
    found = list_checkpoints(config.output_dir)
    own = found[: found.index(final) + 1]
    kept = own[-config.checkpoint_limit :] if config.checkpoint_limit else own
    for other in set(found) - set(kept):
        shutil.rmtree(other, ignore_errors=True)
    return final


def find_resume(config: TrainConfig) -> Resumed | None:
    """The checkpoint that `resume` names: `true` takes the newest of `output_dir`, or none when there is none yet.

    Raises ConfigError when a named folder is no checkpoint.
    """
    if config.resume.lower() == "false":
        return None
    if config.resume.lower() == "true":
        available = list_checkpoints(config.output_dir)
        if not available:
            log.info("resume=true: no checkpoint in %s yet, starting at step 0", config.output_dir)
            return None
        folder = available[-1]
    else:
        folder = Path(config.resume)
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        step, saved = int(state["step"]), dict(state["config"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"resume={config.resume}: {folder} is no complete checkpoint; name a checkpoint-N folder") from None
    return Resumed(step, folder, saved, state.get("data"), state.get("processes"))


def check_resume(resumed: Resumed, config: TrainConfig, data: str, processes: int) -> None:
    """Refuse a checkpoint of another adapter, other clips or another loss, and one that is past the last step.

    Raises ConfigError. Settings of the optimiser and the number of processes may change; that is logged.
    """
    folder, now = resumed.folder, config.to_dict()
    saved = {**TrainConfig().to_dict(), **resumed.config}  # a setting that is newer than the checkpoint had its default
    for key in (*_FIXED, *_MEANING):
        if saved.get(key) != now[key]:
            raise ConfigError(
                f"{folder} has {key}={saved.get(key)} and this run {key}={now[key]}: use the former to continue it, "
                "or another output_dir to start afresh"
            )
    if resumed.data not in (None, data):
        raise ConfigError(f"{folder} was trained on other clips or captions: choose another output_dir to start afresh")
    if resumed.step > config.max_train_steps:
        raise ConfigError(
            f"{folder} has {resumed.step} steps, max_train_steps={config.max_train_steps}: raise it, or choose another output_dir"
        )
    changed = [f"{key} {saved.get(key)} -> {now[key]}" for key in _EXACT if saved.get(key) != now[key]]
    if resumed.processes not in (None, processes):
        changed.append(f"processes {resumed.processes} -> {processes}")
    if changed:
        log.warning("resumed with changed settings, so not bit-equal to an uninterrupted run: %s", ", ".join(changed))


def load_checkpoint(
    resumed: Resumed, transformer: nn.Module, optimizer: Any, scaler: Any = None, average: WeightAverage | None = None
) -> None:
    """Put a checkpoint's weights and optimiser state back, exactly. Raises ConfigError when tensors are missing or left over."""
    load_trained(transformer, resumed.folder)
    state = torch.load(resumed.folder / "optimizer.pt", map_location="cpu", weights_only=True)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for place, moments in state["optimizer"]["state"].items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == parameters[place].shape:
                moments[name] = placed_like(value, parameters[place])
    optimizer.load_state_dict(state["optimizer"])
    if scaler is not None and state["scaler"] is not None:
        scaler.load_state_dict(state["scaler"])
    if average is not None:
        average.load(state["average"] or [p.detach() for p in average.parameters])  # a run without one starts it here
