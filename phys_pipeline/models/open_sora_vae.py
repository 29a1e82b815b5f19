"""The autoencoder of Open-Sora 1.2: a picture autoencoder on every frame, then one along time that makes 17 frames into 5.

Written from a description of the released model and checked against its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.vae import DecoderOutput, DiagonalGaussianDistribution
from diffusers.models.modeling_outputs import AutoencoderKLOutput
from diffusers.models.modeling_utils import ModelMixin
from diffusers.utils.accelerate_utils import apply_forward_hook
from torch import Tensor, nn

from phys_pipeline.errors import ModelError
from phys_pipeline.models.picture_vae import SCALING_FACTOR, decode_frames, encode_frames

CHUNK_FRAMES = 17  # pixel frames that are encoded together; no chunk sees another
TIME_STRIDE = 4
SPATIAL: Mapping[str, Any] = {
    "in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32,
    "block_out_channels": (128, 256, 512, 512), "sample_size": 512,
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
}  # fmt: skip


def latent_frames(frames: int) -> int:
    """Latent frames of a clip: 5 for every 17 frames, and a quarter of the rest, rounded up."""
    chunks, rest = divmod(frames, CHUNK_FRAMES)
    return chunks * _quarters(CHUNK_FRAMES) + _quarters(rest)


def _quarters(frames: int) -> int:
    return -(-frames // TIME_STRIDE)


class CausalConv3d(nn.Module):
    """3D convolution that sees no later frame: zeros in front in time, and on all sides in space."""

    def __init__(self, source: int, target: int, kernel: int, time_stride: int = 1, bias: bool = True) -> None:
        super().__init__()
        side = kernel // 2
        self.padding = (side, side, side, side, kernel - 1 + 1 - time_stride, 0)
        self.conv = nn.Conv3d(source, target, kernel, stride=(time_stride, 1, 1), bias=bias)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        return self.conv(F.pad(x, self.padding))


class ResidualBlock(nn.Module):
    """Norm, SiLU, convolution, twice; a 1x1x1 convolution on the way past where the channels change."""

    def __init__(self, source: int, target: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, source), nn.GroupNorm(groups, target)
        self.conv1 = CausalConv3d(source, target, 3, bias=False)
        self.conv2 = CausalConv3d(target, target, 3, bias=False)
        if source != target:
            self.conv3 = CausalConv3d(source, target, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        inside = self.conv1(F.silu(self.norm1(x)))
        inside = self.conv2(F.silu(self.norm2(inside)))
        return inside + (self.conv3(x) if hasattr(self, "conv3") else x)


def _blocks(source: int, target: int, count: int, groups: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(source if k == 0 else target, target, groups) for k in range(count)))


class TemporalEncoder(nn.Module):
    def __init__(self, channels: int, widths: Sequence[int], halved: Sequence[bool], count: int, groups: int) -> None:
        super().__init__()
        self.conv_in = CausalConv3d(channels, widths[0], 3, bias=False)
        before = (widths[0], *widths[:-1])
        self.block_res_blocks = nn.ModuleList(_blocks(a, b, count, groups) for a, b in zip(before, widths, strict=True))
        self.conv_blocks = nn.ModuleList(
            CausalConv3d(width, width, 3, time_stride=2) if half else nn.Identity()
            for width, half in zip(widths, halved, strict=False)
        )
        self.res_blocks = _blocks(widths[-1], widths[-1], count, groups)
        self.norm1 = nn.GroupNorm(groups, widths[-1])
        self.conv2 = CausalConv3d(widths[-1], 2 * channels, 1)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W) -> (B, 2C, T / 4, H, W)
        x = self.conv_in(x)
        for level, blocks in enumerate(self.block_res_blocks):
            x = blocks(x)
            if level < len(self.conv_blocks):
                x = self.conv_blocks[level](x)
        return self.conv2(F.silu(self.norm1(self.res_blocks(x))))


class TemporalDecoder(nn.Module):
    def __init__(self, channels: int, widths: Sequence[int], halved: Sequence[bool], count: int, groups: int) -> None:
        super().__init__()
        self.conv1 = CausalConv3d(channels, widths[-1], 3)
        self.res_blocks = _blocks(widths[-1], widths[-1], count, groups)
        above = (*widths[1:], widths[-1])
        self.block_res_blocks = nn.ModuleList(_blocks(a, b, count, groups) for a, b in zip(above, widths, strict=True))
        self.conv_blocks = nn.ModuleList(
            CausalConv3d(width, 2 * width, 3) if half else nn.Identity() for width, half in zip(widths[1:], halved, strict=True)
        )
        self.norm1 = nn.GroupNorm(groups, widths[0])
        self.conv_out = CausalConv3d(widths[0], channels, 3)

    def forward(self, z: Tensor) -> Tensor:  # (B, C, T, H, W) -> (B, C, 4T, H, W)
        x = self.res_blocks(self.conv1(z))
        for level in reversed(range(len(self.block_res_blocks))):
            x = self.block_res_blocks[level](x)
            if level > 0 and not isinstance(self.conv_blocks[level - 1], nn.Identity):
                doubled = self.conv_blocks[level - 1](x).unflatten(1, (-1, 2))  # (B, C, 2, T, H, W)
                x = doubled.permute(0, 1, 3, 2, 4, 5).flatten(2, 3)
        return self.conv_out(F.silu(self.norm1(x)))


class TemporalAutoencoder(nn.Module):
    """Between the latents of pictures and those of video; zeros in front make a clip's length a multiple of 4."""

    def __init__(self, channels: int, widths: Sequence[int], halved: Sequence[bool], count: int, groups: int) -> None:
        super().__init__()
        self.encoder = TemporalEncoder(channels, widths, halved, count, groups)
        self.decoder = TemporalDecoder(channels, widths, halved, count, groups)
        self.quant_conv = CausalConv3d(2 * channels, 2 * channels, 1)
        self.post_quant_conv = CausalConv3d(channels, channels, 1)

    def encode(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        """Mean and log-variance, (B, 2C, ceil(T / 4), H, W)."""
        return self.quant_conv(self.encoder(F.pad(x, (0, 0, 0, 0, -x.shape[2] % TIME_STRIDE, 0))))

    def decode(self, z: Tensor, frames: int) -> Tensor:  # (B, C, T', H, W)
        """The last ``frames`` of the 4 T' decoded frames: those in front of them were zeros."""
        decoded = self.decoder(self.post_quant_conv(z))
        return decoded[:, :, decoded.shape[2] - frames :]


class AutoencoderKLOpenSora(ModelMixin, ConfigMixin):  # type: ignore[misc]  # both name their config file
    """Pixels (B, 3, F, H, W) in [-1, 1] <-> latents (B, 4, ``latent_frames(F)``, H/8, W/8).

    ``encode`` gives the distribution of raw latents; ``normalise`` brings them to what the transformer sees. Frames are encoded
    in chunks of 17 that know nothing of each other, so memory doesn't grow with the length, and there is a seam every 17 frames.

    Args:
        spatial: settings of the ``AutoencoderKL``.
        widths, halved, blocks_per_level, groups: of the half along time; ``halved`` says after which levels time is halved.
        shift, scale: per channel, what ``normalise`` subtracts, then divides by. A checkpoint's own values replace them.
    """

    _keep_in_fp32_modules: Any = ["latents_shift", "latents_scale"]  # noqa: RUF012  # a list, as diffusers reads it
    spatial_compression_ratio = 8
    temporal_compression_ratio = TIME_STRIDE

    @register_to_config
    def __init__(
        self,
        spatial: dict[str, Any] | None = None,
        latent_channels: int = 4,
        widths: tuple[int, ...] = (128, 256, 256, 512),
        halved: tuple[bool, ...] = (False, True, True),
        blocks_per_level: int = 4,
        groups: int = 32,
        shift: tuple[float, ...] = (-0.10, 0.34, 0.27, 0.98),
        scale: tuple[float, ...] = (3.85, 2.32, 2.33, 3.06),
    ) -> None:
        super().__init__()
        self.spatial_vae = AutoencoderKL(**dict(SPATIAL if spatial is None else spatial))
        self.temporal_vae = TemporalAutoencoder(latent_channels, widths, halved, blocks_per_level, groups)
        self.register_buffer("latents_shift", torch.tensor(shift).view(1, -1, 1, 1, 1))
        self.register_buffer("latents_scale", torch.tensor(scale).view(1, -1, 1, 1, 1))
        self.spatial_compression_ratio = 2 ** (len(self.spatial_vae.config["block_out_channels"]) - 1)
        self.use_slicing = False

    def normalise(self, latents: Tensor) -> Tensor:  # (B, C, T', h, w)
        """Raw latents to what the transformer sees, float32."""
        shift, scale = (buffer.to(latents.device, torch.float32) for buffer in (self.latents_shift, self.latents_scale))
        return (latents.float() - shift) / scale

    def denormalise(self, latents: Tensor) -> Tensor:  # (B, C, T', h, w)
        """The transformer's latents to raw ones, float32."""
        shift, scale = (buffer.to(latents.device, torch.float32) for buffer in (self.latents_shift, self.latents_scale))
        return latents.float() * scale + shift

    @apply_forward_hook
    def encode(
        self, x: Tensor, return_dict: bool = True, generator: torch.Generator | None = None
    ) -> AutoencoderKLOutput | tuple[DiagonalGaussianDistribution]:
        """Encode ``x`` (B, 3, F, H, W); with ``generator`` the latents of pictures are sampled, else their mode is taken."""
        if x.ndim != 5 or x.shape[1] != self.spatial_vae.config["in_channels"]:
            raise ModelError(f"the autoencoder takes video of shape (batch, 3, frames, height, width), not {tuple(x.shape)}")
        parts = x.split(1) if self.use_slicing else (x,)
        moments = torch.cat([self._encode(part, generator) for part in parts])
        posterior = DiagonalGaussianDistribution(moments)
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)  # type: ignore[arg-type]

    @apply_forward_hook
    def decode(self, z: Tensor, num_frames: int | None = None, return_dict: bool = True) -> DecoderOutput | tuple[Tensor]:
        """Decode raw latents ``z`` (B, C, T', h, w) to ``num_frames`` frames.

        Without ``num_frames`` every 5 latents give 17 frames, and r left over 4r - 3. ModelError for a number of frames that has
        another number of latents.
        """
        chunk = _quarters(CHUNK_FRAMES)
        chunks, rest = divmod(z.shape[2], chunk)
        if num_frames is None:
            num_frames = chunks * CHUNK_FRAMES + (TIME_STRIDE * rest - TIME_STRIDE + 1 if rest else 0)
        if latent_frames(num_frames) != z.shape[2]:
            raise ModelError(
                f"{num_frames} frames have {latent_frames(num_frames)} latents, not {z.shape[2]}: give the clip's own"
            )
        parts = z.split(1) if self.use_slicing else (z,)
        sample = torch.cat([self._decode(part, num_frames) for part in parts])
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample: Tensor, return_dict: bool = True) -> DecoderOutput | tuple[Tensor]:
        """Encode and decode ``sample`` (B, 3, F, H, W)."""
        latents = self.encode(sample, return_dict=False)[0].mode()  # type: ignore[index]
        return self.decode(latents, num_frames=sample.shape[2], return_dict=return_dict)

    def _encode(self, video: Tensor, generator: torch.Generator | None) -> Tensor:  # (B, 3, F, H, W)
        return torch.cat(
            [self.temporal_vae.encode(self.encode_pictures(chunk, generator)) for chunk in video.split(CHUNK_FRAMES, dim=2)],
            dim=2,
        )

    def _decode(self, z: Tensor, frames: int) -> Tensor:  # (B, C, T', h, w)
        decoded: list[Tensor] = []
        for chunk in z.split(_quarters(CHUNK_FRAMES), dim=2):
            own = min(CHUNK_FRAMES, frames - CHUNK_FRAMES * len(decoded))
            decoded.append(self.decode_pictures(self.temporal_vae.decode(chunk, own)))
        return torch.cat(decoded, dim=2)

    def encode_pictures(self, video: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, F, H, W)
        """The picture autoencoder's latents, (B, C, F, h, w)."""
        return encode_frames(self.spatial_vae, video, generator) * SCALING_FACTOR

    def decode_pictures(self, latents: Tensor) -> Tensor:  # (B, C, F, h, w)
        """The picture autoencoder's pixels, (B, 3, F, H, W)."""
        return decode_frames(self.spatial_vae, latents / SCALING_FACTOR)

    def enable_tiling(self) -> None:
        """Work on pictures in overlapping tiles, for large ones."""
        self.spatial_vae.enable_tiling()

    def disable_tiling(self) -> None:
        """Work on whole pictures."""
        self.spatial_vae.disable_tiling()

    def enable_slicing(self) -> None:
        """One video of a batch at a time."""
        self.use_slicing = True

    def disable_slicing(self) -> None:
        """All videos of a batch at once."""
        self.use_slicing = False
