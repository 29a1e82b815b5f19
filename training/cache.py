"""Clips and captions encoded once, kept on disk under the hash of everything that made them.

A changed clip, size, frame rate or VAE re-encodes that clip; a changed caption or text encoder re-encodes that caption; nothing
else is touched, and nothing stale is ever read. Safe to delete at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import DataError
from phys_pipeline.families import VideoFamily
from phys_pipeline.families.sources import local_folder
from training.buckets import config_buckets
from training.config import TrainConfig
from training.sources import Clip, Skipped, reason_table

log = logging.getLogger(__name__)

CODE_VERSION = 1  # raise when reading, resizing or encoding changes its result
_CHUNKS, _CHUNK_BYTES = 16, 1 << 16
_KEPT_BYTES = 1 << 28  # of encoded clips and captions that stay in memory once they are read


class TensorCache:
    """Named tensors under content keys: one safetensors file each, written whole or not at all."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Where the entry of `key` lies, whether it exists or not."""
        return self.folder / key[:2] / f"{key}.safetensors"

    def has(self, key: str) -> bool:
        """True when a readable entry exists; a damaged one is removed with a warning."""
        file = self.path(key)
        if not file.is_file():
            return False
        try:
            with safe_open(str(file), "pt") as reader:
                return bool(list(reader.keys()))
        except (SafetensorError, OSError) as error:
            log.warning("cache entry %s is damaged (%s): encoding it again", file.name, error)
            file.unlink(missing_ok=True)
            return False

    def write(self, key: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Store `tensors`; `about` says for a human reader what they were made from."""
        file = self.path(key)
        with atomic_file(file) as temporary:
            contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            save_file(contiguous, str(temporary), metadata={"about": json.dumps(about, sort_keys=True)})

    def read(self, key: str) -> dict[str, Tensor]:
        """Every tensor of an entry."""
        with safe_open(str(self.path(key)), "pt") as reader:
            return {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118

    def read_row(self, key: str, name: str, row: int) -> Tensor:
        """One row of one tensor, without reading the others."""
        with safe_open(str(self.path(key)), "pt") as reader:
            return reader.get_slice(name)[row]

    def shape(self, key: str, name: str) -> list[int]:
        """Shape of a tensor, without reading it."""
        with safe_open(str(self.path(key)), "pt") as reader:
            return reader.get_slice(name).get_shape()

    def about(self, key: str) -> dict[str, Any]:
        """What the entry says it was made from."""
        with safe_open(str(self.path(key)), "pt") as reader:
            return json.loads(reader.metadata()["about"])


def caches(root: str | Path) -> tuple[TensorCache, TensorCache]:
    """The two halves of a cache folder: encoded clips, encoded captions."""
    return TensorCache(Path(root) / "latents"), TensorCache(Path(root) / "text")


def content_key(**facts: Any) -> str:
    """sha256 of the facts as canonical JSON: the name of a cache entry."""
    text = json.dumps({**facts, "code_version": CODE_VERSION}, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def weights_identity(folder: str | Path) -> str:
    """A fingerprint of a model part on disk: every small file whole, of large weight files the size and 16 samples.

    Reading 16 chunks of 64 KiB tells revisions apart without reading gigabytes at every start.
    """
    root = Path(folder)
    digest = hashlib.sha256()
    for file in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(root).as_posix()}:{size};".encode())
        with file.open("rb") as stream:
            if size <= _CHUNKS * _CHUNK_BYTES:
                digest.update(stream.read())
                continue
            for i in range(_CHUNKS):
                stream.seek(i * (size - _CHUNK_BYTES) // (_CHUNKS - 1))
                digest.update(stream.read(_CHUNK_BYTES))
    return digest.hexdigest()[:16]


def model_identities(config: TrainConfig, family: VideoFamily, vae: Any) -> tuple[str, str]:
    """Fingerprints of everything in the base model that decides latents, and of everything that decides encoded captions."""
    identities = []
    for part in ("vae", "text"):
        components = family.components(part)
        folder = local_folder(config.model, family.spec, components)
        identities.append({name: weights_identity(folder / name) for name in components})
    generation = family.generation_defaults(config.model)
    text = {"template": generation.get("prompt_template"), "length": generation.get("max_sequence_length"), **identities[1]}
    text |= family.text_settings(generation)
    return content_key(**identities[0], **family.encoding_settings(vae)), content_key(**text)


def latents_key(clip: Clip, config: TrainConfig, vae_identity: str) -> str:
    """Key of a clip's encoded windows: the clip's bytes and all that decides pixels and latents, never the caption."""
    extraction = {"how": config.frame_extraction, "seconds": config.max_clip_seconds, "repeated": config.repeated_frames}
    if config.frame_extraction == "uniform":
        extraction["samples"] = config.samples_per_clip
    if config.frame_extraction == "sliding":
        extraction["stride"] = config.window_stride
    buckets = {} if config.buckets == "off" else {"buckets": config_buckets(config)}  # the clip's own is known once it is read
    return content_key(
        clip=clip.digest,
        size=[config.height, config.width],
        crop="center",
        frames=config.frames,
        fps=config.fps,
        extraction=extraction,
        family=config.family,
        vae=vae_identity,
        dtype=config.vae_precision,
        **buckets,
    )


def text_key(caption: str, config: TrainConfig, text_identity: str) -> str:
    """Key of an encoded caption: its words and the text encoders, never the clip."""
    return content_key(caption=caption, family=config.family, text=text_identity, dtype=config.precision)


@dataclass(frozen=True)
class Sample:
    """One window of one clip and its caption, as keys into the cache."""

    name: str  # clip name, with #window when the clip gave several
    latents: str
    window: int
    text: str
    bucket: int  # samples of one number have latents of one shape
    frames: int  # of the window, before encoding


class CachedDataset:
    """Encoded samples, read from disk one at a time. The first 256 MB of them stay in memory: don't write into them."""

    def __init__(self, root: Path, samples: list[Sample], empty_text: str, clips: list[Clip]) -> None:
        self.latents, self.text = caches(root)
        self.samples, self.empty_text, self.clips = samples, empty_text, clips
        self.bucket_of = tuple(sample.bucket for sample in samples)
        self._kept: dict[str | tuple[str, int], dict[str, Tensor]] = {}
        self._room = _KEPT_BYTES

    def __len__(self) -> int:
        return len(self.samples)

    def shortest(self) -> int:
        """Index of a sample with the fewest frames."""
        return min(range(len(self.samples)), key=lambda index: self.samples[index].frames)

    def digest(self) -> str:
        """Fingerprint of the clips' bytes and captions, 16 hexadecimal digits."""
        return content_key(clips=[[c.digest, c.caption] for c in self.clips])[:16]

    def clean(self, index: int) -> Tensor:
        """Latents x0 (C, T, H, W) float32 of one sample."""
        sample = self.samples[index]
        key = sample.latents, sample.window
        return self._remembered(
            key, lambda: {"latents": self.latents.read_row(sample.latents, "latents", sample.window).float()}
        )["latents"]

    def conditioning(self, index: int, *, drop: bool = False) -> dict[str, Tensor]:
        """Encoded caption (no batch axis) of one sample; `drop` gives the empty caption's."""
        key = self.empty_text if drop else self.samples[index].text
        return self._remembered(key, lambda: self.text.read(key))

    def _remembered(self, key: str | tuple[str, int], read: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What `read` gives for `key`, from memory where it was read before and there was room."""
        found = self._kept.get(key)
        if found is None:
            found = read()
            size = sum(value.nbytes for value in found.values())
            if size <= self._room:
                self._kept[key], self._room = found, self._room - size
        return found


def collect(
    clips: list[Clip], skipped: list[Skipped], config: TrainConfig, vae_identity: str, text_identity: str
) -> CachedDataset:
    """The data set of all encoded clips. Raises DataError with every reason when none is left."""
    latents, _ = caches(config.cache_dir)
    unusable = {s.name for s in skipped}
    samples: list[Sample] = []
    used: list[Clip] = []
    shapes: dict[tuple[int, ...], int] = {}
    for clip in clips:
        if clip.name in unusable:
            continue
        key = latents_key(clip, config, vae_identity)
        if not latents.path(key).is_file():
            raise DataError(f"{clip.name} was encoded but is not in {config.cache_dir}: a run's machines share one cache_dir")
        windows, *shape = latents.shape(key, "latents")
        bucket, frames = shapes.setdefault(tuple(shape), len(shapes)), latents.about(key)["frames"]
        names = [clip.name] if windows == 1 else [f"{clip.name}#{w}" for w in range(windows)]
        caption = text_key(clip.caption, config, text_identity)
        samples += [Sample(name, key, w, caption, bucket, frames) for w, name in enumerate(names)]
        used.append(clip)
    if not samples:
        reasons = reason_table(skipped) or "it holds no clip"
        raise DataError(f"no usable clip in {config.data}: {reasons}")
    return CachedDataset(Path(config.cache_dir), samples, text_key("", config, text_identity), used)
