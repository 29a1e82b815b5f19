"""From an official checkpoint to a diffusers folder: strict about names and shapes, one part of the weights in memory."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import ConfigError, ModelError, first_line
from phys_pipeline.models.key_map import KeyMap, Step, converted, listed

SHARD_BYTES = 2 << 30  # at most so much (or one tensor) is in memory
PICKLES = (".pt", ".pth", ".bin", ".ckpt")
_WEIGHTS = "diffusion_pytorch_model"
_OUTER = ("state_dict", "model", "module")  # where training code may keep the weights inside a pickle

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Conversion:
    """One part of a model family and how its official file becomes a diffusers folder.

    Args:
        part: the subfolder it is written to.
        model_class: ``module:class`` of the ModelMixin that will load it.
        marker: a tensor that only this part's checkpoint has.
        key_map: its names and layouts.
        config: (original shapes, original config.json or {}) -> the class's settings; ConfigError if they can't be meant.
    """

    part: str
    model_class: str
    marker: str
    key_map: KeyMap
    config: Callable[[Shapes, Mapping[str, Any]], dict[str, Any]]


class Checkpoint:
    """Tensors of a safetensors file, of a folder of them, or of a pickle; nothing is read before it is asked for.

    Pickles are opened by ``torch.load(weights_only=True, mmap=True)``, which runs no code from the file. Use as
    ``with Checkpoint.open(path) as checkpoint``.
    """

    def __init__(self, shapes: Shapes, read: Callable[[str], Tensor], config: Mapping[str, Any], name: str) -> None:
        self.shapes, self.read, self.config, self.name = shapes, read, config, name

    @classmethod
    @contextmanager
    def open(cls, path: str | Path) -> Iterator[Checkpoint]:
        """ModelError if there is no readable checkpoint at ``path``; the config.json beside it is read too."""
        path = Path(path)
        files = sorted(path.glob("*.safetensors")) or [f for end in PICKLES for f in sorted(path.glob(f"*{end}"))]
        files = files if path.is_dir() else [path]
        if not files or not all(file.is_file() for file in files):
            raise ModelError(f"no checkpoint at {path}: give a .safetensors or {', '.join(PICKLES)} file, or a folder with one")
        folder = path if path.is_dir() else path.parent
        with ExitStack() as stack:
            found: dict[str, Callable[[str], Tensor]] = {}
            shapes: dict[str, tuple[int, ...]] = {}
            for file in files:
                own, read = _safetensors(file, stack) if file.suffix == ".safetensors" else _pickle(file)
                if twice := set(own) & set(shapes):
                    raise ModelError(f"{folder} holds {sorted(twice)[0]} twice: give the one file that is meant")
                shapes |= own
                found |= dict.fromkeys(own, read)
            yield cls(shapes, lambda name: found[name](name), _config(folder), str(path))


def plan(
    shapes: Shapes, config: Mapping[str, Any], conversion: Conversion
) -> tuple[list[Step], dict[str, tuple[int, ...]], dict[str, Any]]:
    """Steps, target shapes and target settings. Allocates nothing.

    Raises ConfigError, naming tensors, unless exactly what the model needs comes out, in the right shapes.
    """
    steps = conversion.key_map.steps(list(shapes))  # names first: an unknown one says most about what this is
    settings = conversion.config(shapes, config)
    expected = {name: tuple(t.shape) for name, t in _empty_model(conversion, settings).state_dict().items()}
    try:
        made = {name: tuple(t.shape) for name, t in converted(steps, lambda name: torch.empty(shapes[name], device="meta"))}
    except (RuntimeError, IndexError) as error:
        raise ConfigError(f"tensors don't fit together ({first_line(error)}): this is another model") from error
    if missing := [name for name in expected if name not in made]:
        raise ConfigError(f"the checkpoint lacks {listed(missing)}: it is incomplete, or another model")
    if extra := [name for name in made if name not in expected]:
        raise ConfigError(f"the checkpoint gives {listed(extra)}, for which a model of its size has no place")
    if wrong := [f"{name} {made[name]} instead of {expected[name]}" for name in expected if made[name] != expected[name]]:
        raise ConfigError(f"the checkpoint has wrong shapes: {listed(wrong)}")
    return steps, made, settings


def convert(source: str | Path, target: str | Path, conversions: tuple[Conversion, ...], shard_bytes: int = SHARD_BYTES) -> Path:
    """Write the part that ``source`` holds as ``target/PART`` in the diffusers layout; returns that folder.

    The folder appears whole or not at all. Values and dtypes stay as they are. Raises ModelError for an unreadable source and
    ConfigError, naming tensors, for one that isn't exactly what a conversion expects.
    """
    with Checkpoint.open(source) as checkpoint:
        conversion = recognised(checkpoint.shapes, conversions, checkpoint.name)
        steps, shapes, settings = plan(checkpoint.shapes, checkpoint.config, conversion)
        with atomic_folder(Path(target) / conversion.part) as folder:
            _empty_model(conversion, settings).save_config(folder)
            _write(steps, shapes, checkpoint.read, folder, shard_bytes)
    return Path(target) / conversion.part


def recognised(shapes: Shapes, conversions: tuple[Conversion, ...], name: str) -> Conversion:
    """The conversion whose marker is there; ConfigError, with what the file does hold, if none is."""
    for conversion in conversions:
        if conversion.marker in shapes:
            return conversion
    wanted = " or ".join(f"{c.marker} ({c.part})" for c in conversions)
    raise ConfigError(f"{name} is not of this family: it holds {listed(list(shapes))}, and none of {wanted}")


def shape_of(shapes: Shapes, name: str, dimensions: int, model: str) -> tuple[int, ...]:
    """The shape of a tensor that settings are read off; ConfigError unless it is there with so many dimensions."""
    shape = shapes.get(name)
    if shape is None or len(shape) != dimensions:
        raise ConfigError(f"{name} is {'missing' if shape is None else f'of shape {shape}'}: this is not {model}, or not whole")
    return shape


def _write(steps: list[Step], shapes: Shapes, read: Callable[[str], Tensor], folder: Path, shard_bytes: int) -> None:
    """Shards of at most ``shard_bytes`` (or one step), and their index if there are several."""
    shards: list[list[Step]] = [[]]
    size = 0
    total = 0
    for step in steps:
        bytes_of_step = sum(4 * torch.Size(shapes[name]).numel() for name in step.targets)  # float32 is the widest there is
        if shards[-1] and size + bytes_of_step > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(step)
        size += bytes_of_step
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"{_WEIGHTS}-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else f"{_WEIGHTS}.safetensors"
        tensors = {key: value.clone(memory_format=torch.contiguous_format) for key, value in converted(shard, read)}
        total += sum(value.nbytes for value in tensors.values())
        index |= dict.fromkeys(tensors, name)
        save_file(tensors, str(folder / name), metadata={"format": "pt"})
        del tensors
    if len(shards) > 1:
        content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}
        (folder / f"{_WEIGHTS}.safetensors.index.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _empty_model(conversion: Conversion, settings: Mapping[str, Any]) -> Any:
    module, name = conversion.model_class.split(":")
    with torch.device("meta"):
        return getattr(importlib.import_module(module), name)(**settings)


def _safetensors(file: Path, stack: ExitStack) -> tuple[dict[str, tuple[int, ...]], Callable[[str], Tensor]]:
    try:
        reader = stack.enter_context(safe_open(str(file), "pt"))
        return {name: tuple(reader.get_slice(name).get_shape()) for name in reader.keys()}, reader.get_tensor  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"can't read {file} ({first_line(error)}): fetch it again") from error


def _pickle(file: Path) -> tuple[dict[str, tuple[int, ...]], Callable[[str], Tensor]]:
    if file.suffix not in PICKLES:
        raise ModelError(f"{file} has an unknown ending: give a .safetensors or {', '.join(PICKLES)} file")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # UnpicklingError, RuntimeError, EOFError, ...: torch has no common one
        raise ModelError(f"can't read {file} as plain tensors ({first_line(error)}): fetch it again") from error
    for outer in _OUTER:
        if isinstance(content, Mapping) and isinstance(content.get(outer), Mapping):
            content = content[outer]
    if not isinstance(content, Mapping) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{file} is not a state dict: give the file with the model's weights")
    return {name: tuple(value.shape) for name, value in content.items()}, content.__getitem__


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(f"{file} is not valid JSON ({first_line(error)}): fetch it again, or remove it") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} must hold an object: fetch it again, or remove it")
    return content
