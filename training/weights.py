"""What a run trains and leaves behind: a LoRA adapter, or (`rank: null`) every weight of the transformer.

An adapter is `pytorch_lora_weights.safetensors` and a copy for ComfyUI, a full transformer the folder `transformer/` in the
diffusers layout; either has `provenance.json` beside it.
"""

from __future__ import annotations

import json
import os
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from phys_pipeline.adapters import inject_lora, save_adapter
from phys_pipeline.adapters.formats import COMFYUI_FOLDER
from phys_pipeline.adapters.licences import licence_of
from phys_pipeline.atomic import atomic_file, atomic_folder
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import LoadedModel, VideoFamily
from phys_pipeline.families.sources import description
from training.config import TrainConfig
from training.report import measured
from training.sharding import placed_like

ADAPTER_FILE = "pytorch_lora_weights.safetensors"
TRANSFORMER_FOLDER = "transformer"
PROVENANCE_FILE = "provenance.json"
_RECORDED = ("rank", "lora_alpha", "learning_rate", "sigma_law", "motion_sigma", "sigma_max")


def attach(model: Any, config: TrainConfig, family: VideoFamily) -> list[nn.Parameter]:
    """The float32 parameters to train: those of a new adapter, or all of `model` but its `unused_parameters()`, if it has any."""
    if config.rank is None:
        model.requires_grad_(True)
        for parameter in getattr(model, "unused_parameters", list)():  # DDP waits for every gradient
            parameter.requires_grad_(False)
        return [parameter for parameter in model.parameters() if parameter.requires_grad]
    targets = config.lora_targets or family.spec.lora_target_regex
    return inject_lora(model, rank=config.rank, alpha=config.lora_alpha, regex=targets, seed=config.seed)


def result_path(folder: Path, config: TrainConfig) -> Path:
    """Where a run's result lies in its folder."""
    return folder / (TRANSFORMER_FOLDER if config.rank is None else ADAPTER_FILE)


def save_trained(model: Any, folder: Path, config: TrainConfig, family: VideoFamily, about: dict[str, Any]) -> Path:
    """Write what is trained and its provenance into `folder`, read it back and compare; returns its path.

    Weights appear before the provenance; `comfyui/NAME.safetensors`, named after the run's folder, only beside a result.
    Raises AdapterError or ModelError when a value is not finite or does not come back.
    """
    revision = description(config.model).get("revision")
    about = about | {name: getattr(config, name) for name in _RECORDED}
    if (scores := measured(folder)) is not None:  # of the last validation, which came before
        about["scores"] = scores
    about["license"] = licence_of(family.spec.name, None if Path(config.model).is_dir() else config.model)
    about |= {
        "loss_weights": {name: config.weights[name] for name in config.active},
        "versions": {name: metadata.version(name) for name in ("torch", "diffusers", "transformers", "peft", "accelerate")},
    }
    if config.rank is None:
        base = Path(config.model).resolve().name if Path(config.model).is_dir() else config.model
        with atomic_folder(folder / TRANSFORMER_FOLDER) as partial:
            model.save_pretrained(partial)
            _verify(model, partial)
        record = {"family": family.spec.name, "base_model": base, "revision": revision, **about}
        with atomic_file(folder / PROVENANCE_FILE) as temporary:
            temporary.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        return folder / TRANSFORMER_FOLDER
    loaded = LoadedModel(None, family, config.model, revision)
    run = Path(config.output_dir).resolve()
    copy = {run: run.name, run / "ema": f"{run.name}_ema"}.get(folder.resolve())  # checkpoints go without
    with tempfile.TemporaryDirectory(prefix=".adapter.", suffix=".partial", dir=folder) as scratch:
        new = Path(scratch) / (copy or "adapter")
        save_adapter(model, new, family=family, base_model=loaded, extra_metadata=about, comfyui=copy is not None)
        copies = [str(path.relative_to(new)) for path in sorted((new / COMFYUI_FOLDER).glob("*"))]
        for name in (*copies, ADAPTER_FILE, PROVENANCE_FILE):
            (folder / name).parent.mkdir(exist_ok=True)
            os.replace(new / name, folder / name)
    return folder / ADAPTER_FILE


def load_trained(model: nn.Module, folder: Path, adapter_name: str = "default") -> None:
    """Put saved weights back, exactly. Raises ConfigError when tensors are missing or left over."""
    if (folder / ADAPTER_FILE).is_file():
        saved = load_file(str(folder / ADAPTER_FILE))
    else:
        saved = {f"transformer.{name}": value for name, value in _read_transformer(folder / TRANSFORMER_FOLDER).items()}
    expected = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, parameter in expected.items():
            key = "transformer." + name.replace(f".{adapter_name}.", ".")
            value = saved.pop(key, None)
            if value is None or value.shape != parameter.shape:
                raise ConfigError(f"{folder}: {key} is missing or of another shape: it is for another base model")
            parameter.copy_(placed_like(value, parameter))
    for name in model.state_dict():  # what isn't trained is as it was: it comes from the base model
        saved.pop(f"transformer.{name}", None)
    if saved:
        raise ConfigError(f"{folder}: {len(saved)} tensors have no place in this model, such as {next(iter(saved))}")


def _read_transformer(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a diffusers model folder, which may be in several files."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(str(file))
    return tensors


def _verify(model: nn.Module, folder: Path) -> None:
    saved = _read_transformer(folder)
    for name, value in model.state_dict().items():
        if not torch.isfinite(value).all():
            raise ModelError(f"{name} holds NaN or infinity: lower learning_rate and train again")
        if name not in saved or not torch.equal(saved[name], value.cpu()):
            raise ModelError(f"{name} was not written correctly: check the disk of output_dir")
