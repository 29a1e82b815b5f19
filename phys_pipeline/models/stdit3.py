"""The video transformer of Open-Sora 1.2 (Zheng et al. 2024, arXiv:2412.20404), "STDiT3", as a diffusers model.

Every layer is a pair: a block that attends within each frame, then one that attends along time at each place. Both look at the
text and have weights of their own. Written from a description of the released model and checked against its numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.loaders import PeftAdapterMixin
from diffusers.models.activations import GELU
from diffusers.models.embeddings import PixArtAlphaTextProjection, TimestepEmbedding, get_timestep_embedding
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from phys_pipeline.errors import ConfigError

FREQUENCIES = 256  # size of the sinusoid that a timestep or a frame rate is told as
NORM_EPSILON = 1e-6
ROTARY_BASE = 10000.0


def position_table(rows: int, columns: int, width: int, scale: float, device: Any = None) -> Tensor:
    """Sine-cosine table (rows * columns, width), float32: the column in the first half, the row in the second.

    Positions are divided by ``scale`` (the picture's side over the base side, in pixels) and stretched as if both sides had
    ``round(sqrt(rows * columns))`` patches.
    """
    base = round(math.sqrt(rows * columns))
    frequencies = 1.0 / ROTARY_BASE ** (torch.arange(0, width // 2, 2, dtype=torch.float64) / (width // 2))
    halves = []
    for count in (columns, rows):
        angles = torch.outer(torch.arange(count, dtype=torch.float64) / scale * base / count, frequencies)
        halves.append(torch.cat([angles.sin(), angles.cos()], dim=1).float().to(device))
    return torch.cat([halves[0].repeat(rows, 1), halves[1].repeat_interleave(columns, dim=0)], dim=1)


def rotate_pairs(x: Tensor) -> Tensor:  # (B, heads, T, head_dim)
    """Rotary embedding of neighbouring channels (2i, 2i+1), positions 0 to T-1, over the whole head."""
    frames, size = x.shape[-2:]
    frequencies = 1.0 / ROTARY_BASE ** (torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    angles = torch.outer(torch.arange(frames, device=x.device, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).to(x.dtype)


class HeadNorm(nn.RMSNorm):
    """RMS norm whose weight follows the input's dtype, as autocast leaves it in float32."""

    def forward(self, x: Tensor) -> Tensor:  # (B, heads, N, head_dim)
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Multi-head attention by PyTorch's own kernel; ``normalised`` puts an RMS norm on each head's queries and keys."""

    def __init__(self, width: int, heads: int, normalised: bool = False, rotary: bool = False) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])
        self.norm_q: nn.Module = HeadNorm(width // heads, eps=NORM_EPSILON) if normalised else nn.Identity()
        self.norm_k: nn.Module = HeadNorm(width // heads, eps=NORM_EPSILON) if normalised else nn.Identity()

    def forward(self, x: Tensor, text: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend from ``x`` (B, N, D) to ``text`` (B, L, D), or to itself; ``mask`` (B, 1, 1, L) bool, True = look at it."""
        source = x if text is None else text
        query, key, value = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.to_q, x), (self.to_k, source), (self.to_v, source))
        )
        query, key = self.norm_q(query), self.norm_k(key)
        if self.rotary:
            query, key = rotate_pairs(query), rotate_pairs(key)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.to_out[0](out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Linear, GELU (tanh form), linear; named as in diffusers."""

    def __init__(self, width: int, ratio: float) -> None:
        super().__init__()
        inner = int(width * ratio)
        self.net = nn.ModuleList([GELU(width, inner, approximate="tanh"), nn.Identity(), nn.Linear(inner, width)])

    def forward(self, x: Tensor) -> Tensor:  # (..., D)
        return self.net[2](self.net[0](x))


def normalised(x: Tensor) -> Tensor:  # (..., D)
    return F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:  # (B, T, S, D), (B, T or 1, 1, D) twice
    return normalised(x) * (1 + scale) + shift


class STDiT3Block(nn.Module):
    """Self-attention within frames or along time, attention to the text, feed-forward."""

    def __init__(self, width: int, heads: int, ratio: float, temporal: bool) -> None:
        super().__init__()
        self.temporal = temporal
        self.scale_shift_table = nn.Parameter(torch.randn(6, width) / width**0.5)
        self.attn1 = Attention(width, heads, normalised=True, rotary=temporal)
        self.attn2 = Attention(width, heads)
        self.ff = FeedForward(width, ratio)

    def forward(self, x: Tensor, text: Tensor, mask: Tensor | None, time: Tensor) -> Tensor:
        """``x`` (B, T, S, D), ``text`` (B, L, D), ``mask`` (B, 1, 1, L), ``time`` (B, T or 1, 1, 6, D) -> (B, T, S, D)."""
        rows = (self.scale_shift_table + time).to(x.dtype).unbind(-2)
        shift, scale, gate, shift_ff, scale_ff, gate_ff = rows
        batch, frames, places = x.shape[:3]
        inside = modulated(x, shift, scale)
        if self.temporal:
            attended = self.attn1(inside.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, places)).transpose(1, 2)
        else:
            attended = self.attn1(inside.flatten(0, 1)).unflatten(0, (batch, frames))
        x = x + gate * attended
        x = x + self.attn2(x.flatten(1, 2), text, mask).unflatten(1, (frames, places))
        return x + gate_ff * self.ff(modulated(x, shift_ff, scale_ff))


class STDiT3Transformer3DModel(ModelMixin, ConfigMixin, PeftAdapterMixin):  # type: ignore[misc]  # both name their config file
    """Open-Sora 1.2's transformer: predicts the velocity ``x0 - noise`` of video latents.

    Args:
        out_channels: twice ``in_channels``: the velocity, then channels that were never trained.
        caption_channels, caption_length: of the T5 embeddings; the learned null caption has this shape.
        base_size: side in pixels of a square picture on which one patch is one unit of position.
    """

    _supports_gradient_checkpointing = True
    _no_split_modules: Any = ["STDiT3Block"]  # noqa: RUF012  # a list, as diffusers reads it
    _keep_in_fp32_modules: Any = ["scale_shift_table", "time_embed", "fps_embed", "time_proj"]  # noqa: RUF012
    _repeated_blocks: Any = ["STDiT3Block"]  # noqa: RUF012

    @register_to_config
    def __init__(
        self,
        in_channels: int = 4,
        out_channels: int = 8,
        num_attention_heads: int = 16,
        attention_head_dim: int = 72,
        num_layers: int = 28,
        patch_size: int = 2,
        mlp_ratio: float = 4.0,
        caption_channels: int = 4096,
        caption_length: int = 300,
        base_size: int = 512,
    ) -> None:
        super().__init__()
        width = num_attention_heads * attention_head_dim
        if width % 4 or attention_head_dim % 2:
            raise ConfigError(f"width {width} must divide by 4 and attention_head_dim {attention_head_dim} by 2")
        patch = (1, patch_size, patch_size)
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv3d(in_channels, width, kernel_size=patch, stride=patch)})
        self.time_embed = TimestepEmbedding(FREQUENCIES, width)
        self.fps_embed = TimestepEmbedding(FREQUENCIES, width)
        self.time_proj = nn.Linear(width, 6 * width)
        self.caption_projection = PixArtAlphaTextProjection(caption_channels, width)
        self.register_buffer("null_caption", torch.randn(caption_length, caption_channels) / caption_channels**0.5)
        self.transformer_blocks, self.temporal_transformer_blocks = (
            nn.ModuleList(STDiT3Block(width, num_attention_heads, mlp_ratio, temporal) for _ in range(num_layers))
            for temporal in (False, True)
        )
        self.scale_shift_table = nn.Parameter(torch.randn(2, width) / width**0.5)
        self.proj_out = nn.Linear(width, patch_size**2 * out_channels)
        self.gradient_checkpointing = False
        self._start()

    def _start(self) -> None:
        """Before training: temporal blocks and the frame rate have no effect."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.zeros_(self.fps_embed.linear_2.weight)
        block: Any
        for block in self.temporal_transformer_blocks:
            for layer in (block.attn1.to_out[0], block.attn2.to_out[0], block.ff.net[2]):
                nn.init.zeros_(layer.weight)

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor | None,
        fps: Tensor,
        height: float,
        width: float,
        frame_mask: Tensor | None = None,
        return_dict: bool = True,
    ) -> Transformer2DModelOutput | tuple[Tensor]:
        """Velocity and unused channels, (B, out_channels, T, H, W), float32.

        Args:
            hidden_states: (B, in_channels, T, H, W) noisy latents; an odd height or width is padded and cropped again.
            timestep: (B,) in 0 to 1000, 1000 is pure noise; may be fractional.
            encoder_hidden_states: (B, L, caption_channels) T5 embeddings, or ``null_caption``.
            encoder_attention_mask: (B or a divisor of it, L), nonzero = text, at least one per row; None = all of it.
            fps: (B or a divisor of it,) frames per second; 120 marks pictures.
            height, width: size in pixels of the video, which scales the positions.
            frame_mask: (B, T) bool, False = a clean frame that is given and not to be made; None = all are made.
        """
        batch, _, frames, rows, columns = hidden_states.shape
        patch = self.config["patch_size"]
        x = F.pad(hidden_states, (0, -columns % patch, 0, -rows % patch))
        down, across = x.shape[3] // patch, x.shape[4] // patch
        embed: Any = self.patch_embed["proj"]
        x = embed(x.to(embed.weight.dtype)).flatten(3).permute(0, 2, 3, 1)  # (B, T, S, D)
        scale = math.sqrt(float(height) * float(width)) / self.config["base_size"]
        x = x + position_table(down, across, x.shape[-1], scale, x.device).to(x.dtype)

        told = self._embed(self.fps_embed, repeated(fps, batch, "fps"))
        time = (self._embed(self.time_embed, timestep) + told)[:, None, None]  # (B, 1, 1, D)
        time_clean = None
        if frame_mask is not None:
            time_clean = (self._embed(self.time_embed, torch.zeros_like(timestep)) + told)[:, None, None]
            making = frame_mask.bool()[:, :, None, None]
            per_block = torch.where(making[..., None], self._project(time), self._project(time_clean))
        else:
            per_block = self._project(time)

        text = self.caption_projection(encoder_hidden_states.to(x.dtype))
        mask = None
        if encoder_attention_mask is not None:
            mask = repeated(encoder_attention_mask, batch, "encoder_attention_mask").bool()[:, None, None, :]
        checkpoint: Any = self._gradient_checkpointing_func
        for pair in zip(self.transformer_blocks, self.temporal_transformer_blocks, strict=True):
            for block in pair:
                if torch.is_grad_enabled() and self.gradient_checkpointing:
                    x = checkpoint(block, x, text, mask, per_block)
                else:
                    x = block(x, text, mask, per_block)

        x = self._finish(x, time)
        if time_clean is not None:  # given frames are normed a second time: so were the weights trained
            x = torch.where(making, x, self._finish(x, time_clean))
        x = self.proj_out(x).unflatten(2, (down, across)).unflatten(-1, (patch, patch, -1))  # (B, T, h, w, p, p, C)
        x = x.permute(0, 6, 1, 2, 4, 3, 5).reshape(batch, -1, frames, down * patch, across * patch)
        sample = x[..., :rows, :columns].float()
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)  # type: ignore[arg-type]

    def _embed(self, embedding: TimestepEmbedding, values: Tensor) -> Tensor:  # (B,) -> (B, D)
        sinusoid = get_timestep_embedding(values.float(), FREQUENCIES, flip_sin_to_cos=True, downscale_freq_shift=0)
        return embedding(sinusoid.to(embedding.linear_1.weight.dtype))

    def _project(self, time: Tensor) -> Tensor:  # (B, 1, 1, D) -> (B, 1, 1, 6, D)
        return self.time_proj(F.silu(time)).unflatten(-1, (6, -1))

    def _finish(self, x: Tensor, time: Tensor) -> Tensor:  # (B, T, S, D), (B, 1, 1, D)
        shift, scale = (self.scale_shift_table + time).to(x.dtype).chunk(2, dim=2)
        return modulated(x, shift, scale)


def repeated(values: Tensor, batch: int, name: str) -> Tensor:  # (B', ...)
    """Rows repeated as a whole until there are ``batch``: what is told once holds for prompt and null text alike."""
    if batch % values.shape[0]:
        raise ConfigError(f"{name} has {values.shape[0]} rows for a batch of {batch}: give one per sample, or one for all")
    return values.repeat(batch // values.shape[0], *(1,) * (values.ndim - 1))
