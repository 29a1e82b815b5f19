"""Clips and captions encoded once, kept on disk under the hash of everything that made them.

A changed clip, size, frame rate or VAE re-encodes that clip; a changed caption or text encoder re-encodes that caption; nothing
else is touched, and nothing stale is ever read. Safe to delete at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import DataError, ModelError
from phys_pipeline.families import VideoFamily
from phys_pipeline.families.sources import local_folder
from training.buckets import config_buckets
from training.config import TrainConfig
from training.data import SkipClip, read_windows
from training.sources import Clip, Skipped, find_clips, reason_table

log = logging.getLogger(__name__)

CODE_VERSION = 1  # raise when reading, resizing or encoding changes its result
_CHUNKS, _CHUNK_BYTES = 16, 1 << 16
_SKIPPED_SHOWN = 50  # a filtered table of a million clips should not fill the log


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
    """Encoded samples, read from disk one at a time."""

    def __init__(self, root: Path, samples: list[Sample], empty_text: str, clips: list[Clip]) -> None:
        self.latents, self.text = caches(root)
        self.samples, self.empty_text, self.clips = samples, empty_text, clips
        self.bucket_of = tuple(sample.bucket for sample in samples)

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
        return self.latents.read_row(sample.latents, "latents", sample.window).float()

    def conditioning(self, index: int, *, drop: bool = False) -> dict[str, Tensor]:
        """Encoded caption (no batch axis) of one sample; `drop` gives the empty caption's."""
        return self.text.read(self.empty_text if drop else self.samples[index].text)


def encode_clips(
    clips: Iterable[Clip], cache: TensorCache, config: TrainConfig, vae_identity: str, encode: Callable[[Tensor], Tensor]
) -> tuple[int, list[Skipped]]:
    """Encode the clips that the cache lacks; returns how many were encoded, and what was skipped and why.

    `encode` maps pixels (B, 3, T, H, W) in [0, 1] to latents (B, C, T', H', W').
    """
    encoded, skipped = 0, []
    for clip in clips:
        key = latents_key(clip, config, vae_identity)
        if cache.has(key):
            continue
        try:
            windows = read_windows(clip, config)
        except SkipClip as reason:
            skipped.append(Skipped(clip.name, str(reason)))
            continue
        batches = [torch.stack(windows[i : i + config.vae_batch_size]) for i in range(0, len(windows), config.vae_batch_size)]
        latents = torch.cat([encode(batch).float().cpu() for batch in batches])
        if not torch.isfinite(latents).all():
            raise ModelError(f"{clip.name}: the VAE gave values that are not finite; set vae_precision=fp32")
        about = {"clip": clip.name, "sha256": clip.digest, "frames": windows[0].shape[1], "fps": config.fps, "vae": vae_identity}
        cache.write(key, {"latents": latents}, about)
        encoded += 1
        log.info("encoded %s: %d window(s) of %s", clip.name, len(latents), "x".join(map(str, latents.shape[1:])))
    return encoded, skipped


def encode_captions(
    captions: Iterable[str],
    cache: TensorCache,
    config: TrainConfig,
    text_identity: str,
    encode: Callable[[list[str]], dict[str, Tensor]],
) -> int:
    """Encode the captions that the cache lacks, one at a time; returns how many. Raises ModelError on an all-zero mask."""
    encoded = 0
    for caption in dict.fromkeys(captions):
        key = text_key(caption, config, text_identity)
        if cache.has(key):
            continue
        row = {name: value[0] for name, value in encode([caption]).items()}
        for name, value in row.items():
            if "mask" in name and not value.any():  # the token refiner divides by the mask's sum
                raise ModelError(f"the caption {caption!r} encodes to no token at all; use words that the text encoder knows")
            if value.is_floating_point() and not torch.isfinite(value).all():
                raise ModelError(f"the text encoder gave values that are not finite for {caption!r}; set precision=fp32")
        cache.write(key, row, {"caption": caption, "text": text_identity})
        encoded += 1
    return encoded


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


def prepare_dataset(
    config: TrainConfig,
    family: VideoFamily,
    *,
    device: torch.device,
    vae_dtype: torch.dtype = torch.float32,
    text_dtype: torch.dtype = torch.float32,
    rank: int = 0,
    world_size: int = 1,
    gather: Callable[[list[Any]], list[Any]] = list,
) -> tuple[CachedDataset, Any]:
    """Find, encode what the cache lacks, and list the samples; returns the data set and the VAE (on the CPU).

    Each of `world_size` processes encodes its share of the clips, and `gather` joins their lists. Text encoders are loaded only
    when a caption is new. Logs what was reused and every skipped clip.
    """
    clips, skipped = find_clips(config)
    vae = family.load("vae", config.model, dtype=vae_dtype)
    for bucket in config_buckets(config):
        family.check_size(*bucket, vae)
    if config.vae_tiling and hasattr(vae, "enable_tiling"):
        vae.enable_tiling()
    vae_identity, text_identity = model_identities(config, family, vae)
    latents, text = caches(config.cache_dir)

    def encode_video(pixels: Tensor) -> Tensor:
        return family.encode_video(vae.to(device), pixels)

    encoded, own_skipped = encode_clips(clips[rank::world_size], latents, config, vae_identity, encode_video)
    vae.to("cpu")
    skipped += gather(own_skipped)
    encoded = sum(gather([encoded]))
    unusable = {s.name for s in skipped}
    used = [clip for clip in clips if clip.name not in unusable]
    captions = list(dict.fromkeys([clip.caption for clip in used] + ([""] if config.caption_dropout > 0 else [])))

    def encode_text(batch: list[str]) -> dict[str, Tensor]:
        try:
            return family.encode_text(text_encoders(), batch)
        except ModelError:
            if batch != [""]:
                raise
            raise ModelError(f"{config.model} can't encode the empty caption: set caption_dropout=0") from None

    loaded: list[Any] = []

    def text_encoders() -> Any:
        if not loaded:
            loaded.append(family.load("text", config.model, dtype=text_dtype).to(device))
        return loaded[0]

    spoken = encode_captions(captions[rank::world_size], text, config, text_identity, encode_text)
    loaded.clear()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # room for the transformer
    spoken = sum(gather([spoken]))
    for s in skipped[:_SKIPPED_SHOWN]:
        log.warning("skipped %s: %s", s.name, s.reason)
    if len(skipped) > _SKIPPED_SHOWN:
        log.warning("and %d more clips; `phys-pipeline data inspect` lists them all", len(skipped) - _SKIPPED_SHOWN)
    dataset = collect(clips, skipped, config, vae_identity, text_identity)
    log.info("clips: %d used, %d skipped; %d samples", len(dataset.clips), len(skipped), len(dataset))
    log.info(
        "cache %s: encoded %d clips and %d captions, reused %d and %d",
        config.cache_dir, encoded, spoken, len(used) - encoded, len(captions) - spoken,
    )  # fmt: skip
    return dataset, vae
