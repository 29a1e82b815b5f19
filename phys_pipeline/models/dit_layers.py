"""Layers of diffusion transformers that follow PixArt-alpha (Chen et al. 2023, arXiv:2310.00426), as MVDiT does.

One set of modulation values is made from the timestep for all blocks, and every block adds its own table to it. The other parts
of such a model are diffusers' own: ``TimestepEmbedding``, ``PixArtAlphaTextProjection`` and ``FeedForward``.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.embeddings import get_timestep_embedding
from torch import Tensor, nn
from torch.nn import functional as F

TIMESTEP_CHANNELS = 256


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
    return get_timestep_embedding(values, TIMESTEP_CHANNELS, flip_sin_to_cos=True, downscale_freq_shift=0).to(dtype)


def sincos_table(positions: Tensor, channels: int) -> Tensor:  # (N,)
    """Position embedding (N, channels), sines first then cosines, of frequencies ``10000 ** (-2 i / channels)``. float64."""
    steps = torch.arange(channels // 2, dtype=positions.dtype, device=positions.device)
    angles = positions[:, None] * 10000.0 ** (-2.0 * steps / channels)
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
    return (F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift).to(x.dtype)


def gated(x: Tensor, gate: Tensor, branch: Tensor) -> Tensor:  # (..., D), broadcastable, (..., D)
    """The residual stream with ``gate * branch`` added, in the dtype of ``x``."""
    return (x + gate * branch).to(x.dtype)


class DiTAttention(nn.Module):
    """Multi-head attention with biases; keys and values come from ``context`` where one is given.

    Args:
        hidden_size: channels of queries, keys, values and output.
        num_heads: it divides ``hidden_size``.
    """

    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
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
        keys: Any = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=keys)
        return self.to_out[0](out.transpose(1, 2).flatten(2))
