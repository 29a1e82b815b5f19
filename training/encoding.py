"""From pixels to latents and from captions to what the transformer reads, unless the cache has them.

Clips and captions are encoded one at a time, so that an entry's bytes do not depend on what else is encoded, in which order, or
by how many processes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ModelError, PhysPipelineError
from phys_pipeline.families import VideoFamily
from training.buckets import config_buckets
from training.cache import TensorCache, caches, latents_key, model_identities, text_key
from training.config import TrainConfig
from training.data import SkipClip, read_windows
from training.model_family import model_family
from training.sources import Clip, read_digest

log = logging.getLogger(__name__)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Outcome:
    """What became of a clip or a caption: `status` is encoded, reused or skipped, `windows` are those of the clip."""

    status: str
    windows: int = 0
    reason: str = ""


def encode_clip(
    clip: Clip, cache: TensorCache, config: TrainConfig, vae_identity: str, encode: Callable[[Tensor], Tensor]
) -> Outcome:
    """Encode a clip unless the cache has it. Raises ModelError for values that are not finite.

    `encode` maps pixels (B, 3, T, H, W) in [0, 1] to latents (B, C, T', H', W').
    """
    key = latents_key(clip, config, vae_identity)
    if cache.has(key):
        return Outcome("reused", cache.shape(key, "latents")[0])
    try:
        windows = read_windows(clip, config)
    except SkipClip as reason:
        return Outcome("skipped", reason=str(reason))
    batches = [torch.stack(windows[i : i + config.vae_batch_size]) for i in range(0, len(windows), config.vae_batch_size)]
    latents = torch.cat([encode(batch).float().cpu() for batch in batches])
    if not torch.isfinite(latents).all():
        raise ModelError(f"{clip.name}: the VAE gave values that are not finite; set vae_precision=fp32")
    about = {"clip": clip.name, "sha256": clip.digest, "frames": windows[0].shape[1], "fps": config.fps, "vae": vae_identity}
    cache.write(key, {"latents": latents}, about)
    log.info("encoded %s: %d window(s) of %s", clip.name, len(latents), "x".join(map(str, latents.shape[1:])))
    return Outcome("encoded", len(latents))


def encode_caption(
    caption: str, cache: TensorCache, config: TrainConfig, text_identity: str,
    encode: Callable[[list[str]], dict[str, Tensor]], optional_masks: tuple[str, ...] = (),
) -> Outcome:  # fmt: skip
    """Encode a caption unless the cache has it.

    Raises ModelError on an all-zero mask that is none of `optional_masks` and on values that are not finite.
    """
    key = text_key(caption, config, text_identity)
    if cache.has(key):
        return Outcome("reused")
    row = {name: value[0] for name, value in encode([caption]).items()}
    for name, value in row.items():
        if "mask" in name and name not in optional_masks and not value.any():  # the token refiner divides by the mask's sum
            raise ModelError(f"the caption {caption!r} encodes to no token at all; use words that the text encoder knows")
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ModelError(f"the text encoder gave values that are not finite for {caption!r}; set precision=fp32")
    cache.write(key, row, {"caption": caption, "text": text_identity})
    return Outcome("encoded")


class Encoder:
    """The encoders of a base model and the caches that they fill. The VAE is loaded at once, text encoders when a caption is new.

    Raises ConfigError when a bucket does not fit the model, such as a number of frames that is not 4k+1.
    """

    def __init__(
        self,
        config: TrainConfig,
        family: VideoFamily,
        device: torch.device,
        vae_dtype: torch.dtype = torch.float32,
        text_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.config, self.family, self.device, self.text_dtype = config, family, device, text_dtype
        self.vae = family.load("vae", config.model, dtype=vae_dtype)
        for bucket in config_buckets(config):
            family.check_size(*bucket, self.vae)
        if config.vae_tiling and hasattr(self.vae, "enable_tiling"):
            self.vae.enable_tiling()
        self.vae_identity, self.text_identity = model_identities(config, family, self.vae)
        self.latents, self.text = caches(config.cache_dir)
        self._text_encoders: Any = None

    def cached(self, kind: str, item: Any) -> Any:
        """The result of :meth:`do` where nothing has to be encoded for it, else None."""
        if kind == "digest":
            return read_digest(item)
        if kind == "clip" and self.latents.has(key := latents_key(item, self.config, self.vae_identity)):
            return Outcome("reused", self.latents.shape(key, "latents")[0])
        if kind == "caption" and self.text.has(text_key(item, self.config, self.text_identity)):
            return Outcome("reused")
        return None

    def do(self, kind: str, item: Any) -> Any:
        """The digest of a file, or the Outcome of a clip or a caption."""
        if kind == "digest":
            return read_digest(item)
        if kind == "clip":
            return encode_clip(item, self.latents, self.config, self.vae_identity, self._encode_video)
        masks = self.family.optional_masks
        return encode_caption(item, self.text, self.config, self.text_identity, self._encode_text, masks)

    def release(self) -> None:
        """Make room for the transformer."""
        self.vae.to("cpu")
        self._text_encoders = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _encode_video(self, pixels: Tensor) -> Tensor:  # (B, 3, T, H, W)
        return self.family.encode_video(self.vae.to(self.device), pixels)

    def _encode_text(self, captions: list[str]) -> dict[str, Tensor]:
        if self._text_encoders is None:
            self.vae.to("cpu")
            self._text_encoders = self.family.load("text", self.config.model, dtype=self.text_dtype).to(self.device)
        try:
            return self.family.encode_text(self._text_encoders, captions)
        except ModelError:
            if captions != [""]:
                raise
            raise ModelError(f"{self.config.model} can't encode the empty caption: set caption_dropout=0") from None


def do_in_worker(settings: str, kind: str, item: Any) -> Any:
    """One job of :func:`over_engine`; an expected error is returned, so that it is not taken for a death."""
    try:
        return make_encoder(settings).do(kind, item)
    except (PhysPipelineError, OSError) as error:
        return error


@lru_cache(maxsize=1)
def make_encoder(settings: str) -> Encoder:
    """This process's encoder, on its first GPU where it has one; `settings` are those of a TrainConfig as JSON."""
    config, family = model_family(TrainConfig(**json.loads(settings)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Encoder(config, family, device, DTYPES[config.vae_precision], DTYPES[config.precision])
