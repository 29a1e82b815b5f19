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
from diffusers.models.attention import FeedForward
from diffusers.models.embeddings import PixArtAlphaTextProjection, TimestepEmbedding
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.dit_layers import (
    TIMESTEP_CHANNELS,
    DiTAttention,
    PatchEmbed3D,
    grid_positions,
    modulate,
    repeated_rows,
    sincos_table_2d,
    timestep_features,
    unpatchify,
)


def position_table(rows: int, columns: int, channels: int, scale: float, device: torch.device) -> Tensor:
    """Position embedding (rows * columns, channels), float64: the column in the first half, the row in the second.

    Positions are divided by ``scale`` (the picture's side over the base side, in pixels) and stretched as if both sides had
    ``round(sqrt(rows * columns))`` patches.
    """
    base = round(math.sqrt(rows * columns))
    down, across = (grid_positions(count, device) / scale * base / count for count in (rows, columns))
    return sincos_table_2d(down, across, channels)


class STDiT3Block(nn.Module):
    """Self-attention within frames or along time, attention to the text, feed-forward."""

    def __init__(self, width: int, heads: int, ratio: float, temporal: bool) -> None:
        super().__init__()
        self.temporal = temporal
        self.scale_shift_table = nn.Parameter(torch.randn(6, width) / width**0.5)
        self.attn1 = DiTAttention(width, heads, normalised=True, rotary=temporal)
        self.attn2 = DiTAttention(width, heads)
        self.ff = FeedForward(width, inner_dim=int(width * ratio), activation_fn="gelu-approximate")

    def forward(self, x: Tensor, text: Tensor, mask: Tensor | None, time: Tensor) -> Tensor:
        """``x`` (B, T, S, D), ``text`` (B, L, D), ``mask`` (B, L) bool, ``time`` (B, T or 1, 1, 6, D) -> (B, T, S, D)."""
        rows = (self.scale_shift_table + time).to(x.dtype).unbind(-2)
        shift, scale, gate, shift_ff, scale_ff, gate_ff = rows
        batch, frames, places = x.shape[:3]
        inside = modulate(x, shift, scale)
        if self.temporal:
            attended = self.attn1(inside.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, places)).transpose(1, 2)
        else:
            attended = self.attn1(inside.flatten(0, 1)).unflatten(0, (batch, frames))
        x = x + gate * attended
        x = x + self.attn2(x.flatten(1, 2), text, mask).unflatten(1, (frames, places))
        return x + gate_ff * self.ff(modulate(x, shift_ff, scale_ff))


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
        self.patch_embed = PatchEmbed3D(in_channels, width, (1, patch_size, patch_size))
        self.time_embed = TimestepEmbedding(TIMESTEP_CHANNELS, width)
        self.fps_embed = TimestepEmbedding(TIMESTEP_CHANNELS, width)
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
        x = self.patch_embed(x.to(self.patch_embed.proj.weight.dtype))  # (B, T, S, D)
        scale = math.sqrt(float(height) * float(width)) / self.config["base_size"]
        x = x + position_table(down, across, x.shape[-1], scale, x.device).to(x.dtype)

        told = self._embed(self.fps_embed, repeated_rows(fps, batch, "fps"))
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
            mask = repeated_rows(encoder_attention_mask, batch, "encoder_attention_mask").bool()
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
        x = unpatchify(self.proj_out(x).flatten(1, 2), (frames, down, across), (1, patch, patch))
        sample = x[..., :rows, :columns].float()
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)  # type: ignore[arg-type]

    def _embed(self, embedding: TimestepEmbedding, values: Tensor) -> Tensor:  # (B,) -> (B, D)
        return embedding(timestep_features(values, embedding.linear_1.weight.dtype))

    def _project(self, time: Tensor) -> Tensor:  # (B, 1, 1, D) -> (B, 1, 1, 6, D)
        return self.time_proj(F.silu(time)).unflatten(-1, (6, -1))

    def _finish(self, x: Tensor, time: Tensor) -> Tensor:  # (B, T, S, D), (B, 1, 1, D)
        shift, scale = (self.scale_shift_table + time).to(x.dtype).chunk(2, dim=2)
        return modulate(x, shift, scale)
