"""MVDiT, the two-stream video transformer of OpenVid-1M (Nan et al. 2024, arXiv:2407.02371), as a diffusers model.

Video and text tokens are both updated by every block: attention over space and then over time sees the two together, in the
frames' own copies of the text. Modulation values come from one timestep for all blocks, as in PixArt-alpha.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.loaders import PeftAdapterMixin
from diffusers.models.attention import FeedForward
from diffusers.models.embeddings import PixArtAlphaTextProjection, TimestepEmbedding
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from phys_pipeline.errors import ModelError
from phys_pipeline.models.dit_layers import (
    TIMESTEP_CHANNELS,
    DiTAttention,
    PatchEmbed3D,
    gated,
    grid_positions,
    modulate,
    modulation,
    repeated_rows,
    sincos_table,
    sincos_table_2d,
    timestep_features,
    unpatchify,
)


class MVDiTBlock(nn.Module):
    """Joint attention over space, joint attention over time, cross-attention, and an MLP for each of the two streams.

    In a model's last block ``ff_text`` and rows 3 to 5 of ``scale_shift_table_y`` change nothing that is read any more.
    """

    def __init__(self, hidden_size: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__()
        width = int(hidden_size * mlp_ratio)
        spread = hidden_size**-0.5
        self.scale_shift_table = nn.Parameter(torch.randn(6, hidden_size) * spread)
        self.scale_shift_table_y = nn.Parameter(torch.randn(6, hidden_size) * spread)
        self.scale_shift_table_temp = nn.Parameter(torch.randn(3, hidden_size) * spread)
        self.scale_shift_table_y_temp = nn.Parameter(torch.randn(3, hidden_size) * spread)
        self.attn1 = DiTAttention(hidden_size, num_heads)
        self.attn_temp = DiTAttention(hidden_size, num_heads)
        self.attn2 = DiTAttention(hidden_size, num_heads)
        self.ff = FeedForward(hidden_size, inner_dim=width, activation_fn="gelu-approximate")
        self.ff_text = FeedForward(hidden_size, inner_dim=width, activation_fn="gelu-approximate")

    def forward(
        self,
        x: Tensor,  # (B, T, S, D) video
        y: Tensor,  # (B, T, L, D) text
        time: tuple[Tensor, Tensor, Tensor, Tensor],  # (B, 6D) video, (B, 6D) text, (B, 3D) video, (B, 3D) text
        mask: Tensor,  # (B, L) bool
        temporal_table: Tensor | None = None,  # (T, D)
    ) -> tuple[Tensor, Tensor]:
        """Both streams. ``temporal_table`` is added to what attention over time sees, not to the streams."""
        batch, frames, patches, _ = x.shape
        text_keys = mask.repeat_interleave(frames, dim=0)  # (B*T, L)
        keys = torch.cat([text_keys.new_ones(batch * frames, patches), text_keys], dim=1)

        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = _rows(self.scale_shift_table, time[0])
        shift_y, scale_y, gate_y, mlp_shift_y, mlp_scale_y, mlp_gate_y = _rows(self.scale_shift_table_y, time[1])
        joint = torch.cat([modulate(x, shift, scale), modulate(y, shift_y, scale_y)], dim=2)
        joint = self.attn1(joint.flatten(0, 1), mask=keys).unflatten(0, (batch, frames))
        x, y = gated(x, gate, joint[:, :, :patches]), gated(y, gate_y, joint[:, :, patches:])

        shift, scale, gate = _rows(self.scale_shift_table_temp, time[2])
        shift_y, scale_y, gate_y = _rows(self.scale_shift_table_y_temp, time[3])
        joint = torch.cat([modulate(x, shift, scale), modulate(y, shift_y, scale_y)], dim=2).transpose(1, 2)
        if temporal_table is not None:
            joint = joint + temporal_table
        joint = self.attn_temp(joint.flatten(0, 1)).unflatten(0, (batch, -1)).transpose(1, 2)
        x, y = gated(x, gate, joint[:, :, :patches]), gated(y, gate_y, joint[:, :, patches:])

        crossed = self.attn2(x.flatten(0, 1), y.flatten(0, 1), text_keys)
        x = x + crossed.unflatten(0, (batch, frames))
        x = gated(x, mlp_gate, self.ff(modulate(x, mlp_shift, mlp_scale)))
        y = gated(y, mlp_gate_y, self.ff_text(modulate(y, mlp_shift_y, mlp_scale_y)))
        return x, y


class MVDiTTransformer3DModel(ModelMixin, ConfigMixin, PeftAdapterMixin):  # type: ignore[misc]  # both name their config file
    """Predicts noise and variance of latents (B, C, T, H, W) of any size whose sides are multiples of the patch.

    Args:
        num_attention_heads, attention_head_dim: their product is the hidden size, a multiple of 4.
        num_layers: number of blocks.
        in_channels: latent channels. ``out_channels`` is twice that: noise, then the interpolation of the variance in [-1, 1].
        patch_size: (time, height, width); time must be 1.
        mlp_ratio: width of the MLPs over the hidden size.
        caption_channels, max_sequence_length: shape of the text features, and of ``null_caption``, the learned features of
            no caption at all, which stand for the prompt in guidance (with the prompt's own mask).
        sample_frames, sample_height, sample_width: latent size that the weights were trained at. Other sizes run: the position
            tables are made for the input at hand.
        space_scale, time_scale: by which positions are divided (space: 0.5 for a model trained at 256 pixels, 1 at 512).
    """

    _supports_gradient_checkpointing = True
    _no_split_modules: Any = ("MVDiTBlock",)
    _repeated_blocks: Any = ("MVDiTBlock",)
    _skip_layerwise_casting_patterns: Any = ("patch_embed", "time_embed", "time_proj", "scale_shift_table")
    _keep_in_fp32_modules: Any = [  # noqa: RUF012  # diffusers reads a list
        "time_embed", "time_proj", "time_proj_y", "time_proj_temp", "time_proj_y_temp",
        "scale_shift_table", "scale_shift_table_y", "scale_shift_table_temp", "scale_shift_table_y_temp",
    ]  # fmt: skip

    @register_to_config
    def __init__(
        self,
        num_attention_heads: int = 16,
        attention_head_dim: int = 72,
        num_layers: int = 28,
        in_channels: int = 4,
        out_channels: int = 8,
        patch_size: tuple[int, int, int] = (1, 2, 2),
        mlp_ratio: float = 4.0,
        caption_channels: int = 4096,
        max_sequence_length: int = 120,
        sample_frames: int = 16,
        sample_height: int = 64,
        sample_width: int = 64,
        space_scale: float = 1.0,
        time_scale: float = 1.0,
    ) -> None:
        super().__init__()
        hidden_size = num_attention_heads * attention_head_dim
        if hidden_size % 4 or patch_size[0] != 1 or out_channels != 2 * in_channels:
            raise ModelError(
                f"MVDiT with hidden size {hidden_size}, patch {tuple(patch_size)} and {in_channels} to {out_channels} channels: "
                "use a multiple of 4, a patch of 1 in time, and twice as many channels out as in"
            )
        self.patch_embed = PatchEmbed3D(in_channels, hidden_size, patch_size)
        self.time_embed = TimestepEmbedding(TIMESTEP_CHANNELS, hidden_size)
        self.time_proj = nn.Linear(hidden_size, 6 * hidden_size)
        self.time_proj_y = nn.Linear(hidden_size, 6 * hidden_size)
        self.time_proj_temp = nn.Linear(hidden_size, 3 * hidden_size)
        self.time_proj_y_temp = nn.Linear(hidden_size, 3 * hidden_size)
        self.caption_projection = PixArtAlphaTextProjection(caption_channels, hidden_size)
        self.register_buffer("null_caption", torch.randn(max_sequence_length, caption_channels) * caption_channels**-0.5)
        self.transformer_blocks = nn.ModuleList(
            MVDiTBlock(hidden_size, num_attention_heads, mlp_ratio) for _ in range(num_layers)
        )
        self.scale_shift_table = nn.Parameter(torch.randn(2, hidden_size) * hidden_size**-0.5)
        self.proj_out = nn.Linear(hidden_size, patch_size[1] * patch_size[2] * out_channels)
        self.gradient_checkpointing = False
        self._initialize()

    def _initialize(self) -> None:
        """Linear layers as in the original training; what would disturb weights taken over from an image model starts at zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for name, parameter in self.transformer_blocks.named_parameters():
            if name.endswith(("attn_temp.to_out.0.weight", "attn2.to_out.0.weight")):
                nn.init.zeros_(parameter)
        nn.init.zeros_(self.proj_out.weight)

    def unused_parameters(self) -> list[nn.Parameter]:
        """Parameters that never get a gradient: the text MLP of the last block, whose output nothing reads."""
        return list(self.transformer_blocks[-1].get_submodule("ff_text").parameters())

    def forward(
        self,
        hidden_states: Tensor,  # (B, C, T, H, W)
        timestep: Tensor,  # (B,)
        encoder_hidden_states: Tensor,  # (B, L, caption_channels)
        encoder_attention_mask: Tensor | None = None,  # (B or a divisor of B, L)
        return_dict: bool = True,
    ) -> Transformer2DModelOutput | tuple[Tensor]:
        """Noise and variance values (B, 2C, T, H, W) in the dtype of the input.

        ``timestep`` counts from 0 to 999. The mask is required; it is 1 for tokens of the caption, and one with fewer rows
        than the batch (guidance: prompts, then null captions) is repeated. Raises ModelError for a missing mask, text
        whose shape doesn't fit, or a size that isn't a multiple of the patch, ConfigError for a mask of other rows.
        """
        if encoder_attention_mask is None:
            raise ModelError("MVDiT needs encoder_attention_mask (batch, tokens): padded text must not be read as text")
        batch, _, frames, height, width = hidden_states.shape
        mask = repeated_rows(encoder_attention_mask, batch, "encoder_attention_mask").bool()
        if encoder_hidden_states.shape[:2] != mask.shape:
            raise ModelError(
                f"text of shape {tuple(encoder_hidden_states.shape)} with a mask of {mask.shape[1]} tokens does not fit a batch "
                f"of {batch}: give features (batch, tokens, channels) and a mask (batch, tokens)"
            )
        _, patch_height, patch_width = patch = self.config["patch_size"]
        if height % patch_height or width % patch_width:
            raise ModelError(f"latents of {height}x{width} can't be cut into patches of {patch_height}x{patch_width}: "
                             "use pixel sizes that are multiples of 16")  # fmt: skip
        grid = (frames, height // patch_height, width // patch_width)

        x = self.patch_embed(hidden_states)
        x = x + self._spatial_table(grid, x.device).to(x.dtype)
        temporal_table = self._temporal_table(frames, x.device).to(x.dtype)
        features = timestep_features(timestep, self.time_embed.linear_1.weight.dtype)
        embedded = self.time_embed(features)
        activated = nn.functional.silu(embedded)
        time = tuple(
            projection(activated) for projection in (self.time_proj, self.time_proj_y, self.time_proj_temp, self.time_proj_y_temp)
        )
        y = self.caption_projection(encoder_hidden_states)[:, None].expand(-1, frames, -1, -1)

        for index, block in enumerate(self.transformer_blocks):
            arguments = (x, y, time, mask, temporal_table if index == 0 else None)
            if torch.is_grad_enabled() and self.gradient_checkpointing:
                x, y = self._gradient_checkpointing_func(block, *arguments)  # type: ignore[misc]  # set when it is enabled
            else:
                x, y = block(*arguments)

        shift, scale = modulation(self.scale_shift_table, embedded.repeat(1, 2))
        x = self.proj_out(modulate(x.flatten(1, 2), shift, scale))
        sample = unpatchify(x, grid, patch)
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)

    def _spatial_table(self, grid: tuple[int, int, int], device: torch.device) -> Tensor:
        """(S, D) float64: the frame's patches, the same for all frames."""
        rows, columns = (grid_positions(count, device) / self.config["space_scale"] for count in grid[1:])
        return sincos_table_2d(rows, columns, self.proj_out.in_features)

    def _temporal_table(self, frames: int, device: torch.device) -> Tensor:
        """(T, D) float64."""
        return sincos_table(grid_positions(frames, device) / self.config["time_scale"], self.proj_out.in_features)


def _rows(table: Tensor, time: Tensor) -> list[Any]:  # (K, D), (B, K*D)
    """K modulation values, each (B, 1, 1, D)."""
    return [value[:, None] for value in modulation(table, time)]
