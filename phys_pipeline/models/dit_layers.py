"""Layers of diffusion transformers that follow PixArt-alpha (Chen et al. 2023, arXiv:2310.00426), as STDiT3 and MVDiT do.

One set of modulation values is made from the timestep for all blocks, and every block adds its own table to it. The other parts
of such a model are diffusers' own: ``TimestepEmbedding``, ``PixArtAlphaTextProjection`` and ``FeedForward``.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.embeddings import get_timestep_embedding
from torch import Tensor, nn
from torch.nn import functional as F

from phys_pipeline.errors import ConfigError

TIMESTEP_CHANNELS = 256
NORM_EPSILON = 1e-6
_WAVELENGTH_BASE = 10000.0  # of sinusoids and rotations alike


class PatchEmbed3D(nn.Module):
    """Video latents (B, C, T, H, W) to tokens (B, T', H'*W', D), width fastest, by one convolution whose stride is its kernel."""

    def __init__(self, in_channels: int, hidden_size: int, patch_size: tuple[int, int, int]) -> None:
        super().__init__()
        self.proj = nn.Conv3d(in_channels, hidden_size, patch_size, stride=patch_size)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        return self.proj(x).flatten(3).permute(0, 2, 3, 1)


def unpatchify(tokens: Tensor, grid: tuple[int, int, int], patch_size: tuple[int, int, int]) -> Tensor:  # (B, T'*H'*W', P)
    """Tokens to latents (B, C, T, H, W). ``grid`` counts the patches (T', H', W'); the P values of a token are ordered
    (patch time, patch height, patch width, channel), channel fastest."""
    x = tokens.unflatten(1, grid).unflatten(-1, (*patch_size, -1))  # (B, T', H', W', p_t, p_h, p_w, C)
    return x.permute(0, 7, 1, 4, 2, 5, 3, 6).flatten(6, 7).flatten(4, 5).flatten(2, 3)


def timestep_features(values: Tensor, dtype: torch.dtype) -> Tensor:  # (B,)
    """Sinusoids (B, 256) of a timestep or another number, cosines first. Made in float32: bfloat16 has steps of 4 above 512."""
    return get_timestep_embedding(values.float(), TIMESTEP_CHANNELS, flip_sin_to_cos=True, downscale_freq_shift=0).to(dtype)


def sincos_table(positions: Tensor, channels: int) -> Tensor:  # (N,)
    """Position embedding (N, channels), sines first then cosines, of frequencies ``10000 ** (-2 i / channels)``. float64."""
    steps = torch.arange(channels // 2, dtype=positions.dtype, device=positions.device)
    angles = positions[:, None] * _WAVELENGTH_BASE ** (-2.0 * steps / channels)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def sincos_table_2d(rows: Tensor, columns: Tensor, channels: int) -> Tensor:  # (H,), (W,)
    """Position embedding (H*W, channels) of a grid; the first half of the channels tells the column, the second the row."""
    across = sincos_table(columns, channels // 2).expand(len(rows), -1, -1)
    down = sincos_table(rows, channels // 2)[:, None].expand(-1, len(columns), -1)
    return torch.cat([across, down], dim=-1).flatten(0, 1)


def grid_positions(count: int, device: torch.device) -> Tensor:
    """0, 1, ..., count - 1 in float64, in which the references compute their tables (float32 where a device lacks it)."""
    return torch.arange(count, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)


def modulation(table: Tensor, time: Tensor) -> tuple[Tensor, ...]:  # (K, D), (B, K*D)
    """K modulation values, each (B, 1, D): a block's own table added to what the timestep says."""
    return (table + time.unflatten(1, table.shape)).split(1, dim=1)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:  # (..., D), broadcastable to x
    """``LayerNorm(x) * (1 + scale) + shift`` without learned parameters, in the dtype of ``x``."""
    return (F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON) * (1 + scale) + shift).to(x.dtype)


def gated(x: Tensor, gate: Tensor, branch: Tensor) -> Tensor:  # (..., D), broadcastable, (..., D)
    """The residual stream with ``gate * branch`` added, in the dtype of ``x``."""
    return (x + gate * branch).to(x.dtype)


def rotate_pairs(x: Tensor) -> Tensor:  # (B, heads, N, head_dim)
    """Rotary embedding of neighbouring channels (2i, 2i+1), positions 0 to N-1, over the whole head. Made in float32."""
    count, size = x.shape[-2:]
    frequencies = 1.0 / _WAVELENGTH_BASE ** (torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    angles = torch.outer(torch.arange(count, device=x.device, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).to(x.dtype)


def repeated_rows(values: Tensor, batch: int, name: str) -> Tensor:  # (B', ...)
    """Rows repeated as a whole until there are ``batch``: what is told once holds for prompt and null caption alike.

    ConfigError, with ``name``, if ``batch`` is no multiple of the rows.
    """
    if batch % values.shape[0]:
        raise ConfigError(f"{name} has {values.shape[0]} rows for a batch of {batch}: give one per sample, or one for all")
    return values.repeat(batch // values.shape[0], *(1,) * (values.ndim - 1))


class HeadNorm(nn.RMSNorm):
    """RMS norm whose weight follows the input's dtype, as autocast leaves it in float32."""

    def forward(self, x: Tensor) -> Tensor:  # (B, heads, N, head_dim)
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class DiTAttention(nn.Module):
    """Multi-head attention with biases; keys and values come from ``context`` where one is given.

    Args:
        hidden_size: channels of queries, keys, values and output.
        num_heads: it divides ``hidden_size``.
        normalised: an RMS norm on each head's queries and keys.
        rotary: :func:`rotate_pairs` on queries and keys.
    """

    def __init__(self, hidden_size: int, num_heads: int, *, normalised: bool = False, rotary: bool = False) -> None:
        super().__init__()
        self.heads, self.rotary = num_heads, rotary
        self.norm_q: nn.Module = HeadNorm(hidden_size // num_heads, eps=NORM_EPSILON) if normalised else nn.Identity()
        self.norm_k: nn.Module = HeadNorm(hidden_size // num_heads, eps=NORM_EPSILON) if normalised else nn.Identity()
        self.to_q = nn.Linear(hidden_size, hidden_size)
        self.to_k = nn.Linear(hidden_size, hidden_size)
        self.to_v = nn.Linear(hidden_size, hidden_size)
        self.to_out = nn.ModuleList([nn.Linear(hidden_size, hidden_size)])  # a list: diffusers' name is to_out.0

    def forward(
        self,
        x: Tensor,  # (N, Q, D)
        context: Tensor | None = None,  # (N, K, D)
        mask: Tensor | None = None,  # (N, K) bool
    ) -> Tensor:
        """(N, Q, D). ``mask`` is True for the keys that may be seen."""
        context = x if context is None else context
        query, key, value = (
            projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, Q or K, D / heads)
            for projected in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        query, key = self.norm_q(query), self.norm_k(key)
        if self.rotary:
            query, key = rotate_pairs(query), rotate_pairs(key)
        keys: Any = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=keys)
        return self.to_out[0](out.transpose(1, 2).flatten(2))
