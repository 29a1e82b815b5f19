"""A small convolutional autoencoder, frame by frame, with the interface of diffusers' video autoencoders.

It lets the unchanged ``HunyuanVideoPipeline`` run with a model of a few megabytes on a CPU.
"""

from __future__ import annotations

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.autoencoders.vae import DecoderOutput, IdentityDistribution
from diffusers.models.modeling_outputs import AutoencoderKLOutput
from diffusers.models.modeling_utils import ModelMixin
from torch import nn

from phys_pipeline.errors import ModelError


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (N, C, H, W)
        return x + self.second(nn.functional.silu(self.first(nn.functional.silu(x))))


def _upsample(source: int, target: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(source, 4 * target, 3, padding=1), nn.PixelShuffle(2))


class FrameAutoencoder(ModelMixin, ConfigMixin):  # type: ignore[misc]  # both name their config file
    """Deterministic autoencoder: pixels (B, 3, T, H, W) in [-1, 1] <-> latents (B, latent_channels, T, H/8, W/8).

    Time isn't compressed, and no frame sees another. Latents times ``config.scaling_factor`` have about unit variance.
    ModelError when a picture's side is not a multiple of 8.
    """

    temporal_compression_ratio = 1
    spatial_compression_ratio = 8

    @register_to_config
    def __init__(
        self,
        latent_channels: int = 16,
        widths: tuple[int, int, int] = (32, 64, 96),
        scaling_factor: float = 1.0,
    ) -> None:
        super().__init__()
        narrow, middle, wide = widths
        self.encoder = nn.Sequential(
            nn.Conv2d(3, narrow, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(narrow, middle, 4, stride=2, padding=1),
            _ResidualBlock(middle),
            nn.Conv2d(middle, wide, 4, stride=2, padding=1),
            _ResidualBlock(wide),
            nn.SiLU(),
            nn.Conv2d(wide, latent_channels, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(latent_channels, wide, 1),  # 1x1, so that a change of the latents' scale and mean can be folded in exactly
            _ResidualBlock(wide),
            _ResidualBlock(wide),
            _upsample(wide, middle),
            _ResidualBlock(middle),
            _ResidualBlock(middle),
            _upsample(middle, narrow),
            _ResidualBlock(narrow),
            nn.SiLU(),
            _upsample(narrow, 3),
        )

    def encode(self, x: torch.Tensor, return_dict: bool = True) -> AutoencoderKLOutput | tuple[IdentityDistribution]:
        """Encode ``x`` (B, 3, T, H, W) in [-1, 1]; ``.latent_dist.mode()`` and ``.sample()`` both give the latents."""
        if x.ndim != 5 or x.shape[1] != 3:
            raise ModelError(f"the autoencoder takes video of shape (batch, 3, frames, height, width), not {tuple(x.shape)}")
        height, width = x.shape[-2:]
        multiple = self.spatial_compression_ratio
        if height % multiple or width % multiple:
            raise ModelError(f"{width}x{height} pixels don't fit the autoencoder: make both sides multiples of {multiple}")
        distribution = IdentityDistribution(self._per_frame(self.encoder, x))
        return AutoencoderKLOutput(latent_dist=distribution) if return_dict else (distribution,)  # type: ignore[arg-type]

    def decode(self, z: torch.Tensor, return_dict: bool = True) -> DecoderOutput | tuple[torch.Tensor]:
        """Decode latents ``z`` (B, latent_channels, T, h, w) to pixels (B, 3, T, 8h, 8w), about in [-1, 1], not clamped."""
        channels = self.config["latent_channels"]
        if z.ndim != 5 or z.shape[1] != channels:
            raise ModelError(f"latents must have shape (batch, {channels}, frames, height, width), not {tuple(z.shape)}")
        sample = self._per_frame(self.decoder, z)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample: torch.Tensor, return_dict: bool = True) -> DecoderOutput | tuple[torch.Tensor]:
        """Encode and decode ``sample`` (B, 3, T, H, W)."""
        return self.decode(self.encode(sample, return_dict=False)[0].mode(), return_dict=return_dict)  # type: ignore[index]

    @staticmethod
    def _per_frame(module: nn.Module, video: torch.Tensor) -> torch.Tensor:  # (B, C, T, H, W)
        batch, _, frames = video.shape[:3]
        out = module(video.transpose(1, 2).flatten(0, 1))
        return out.unflatten(0, (batch, frames)).transpose(1, 2)

    # Memory is small at any size this model is meant for: the pipeline's switches are accepted and change nothing.
    def enable_tiling(self, *_: object, **__: object) -> None:
        """Accepted for compatibility; changes nothing."""

    def disable_tiling(self) -> None:
        """Accepted for compatibility; changes nothing."""

    def enable_slicing(self) -> None:
        """Accepted for compatibility; changes nothing."""

    def disable_slicing(self) -> None:
        """Accepted for compatibility; changes nothing."""
