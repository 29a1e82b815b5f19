"""Shared layers of the diffusion transformers against plain loops and known values."""

import torch
from torch.nn import functional as F

from phys_pipeline.models.dit_layers import (
    DiTAttention,
    PatchEmbed3D,
    gated,
    grid_positions,
    modulate,
    modulation,
    rotate_pairs,
    sincos_table,
    sincos_table_2d,
    timestep_features,
    unpatchify,
)

CPU = torch.device("cpu")


def test_patches_are_ordered_time_height_width_and_unpatchify_puts_channels_last():
    x = torch.arange(2 * 4 * 3 * 4 * 6, dtype=torch.float32).view(2, 4, 3, 4, 6)
    embed = PatchEmbed3D(4, 16, (1, 2, 2))
    with torch.no_grad():  # a token is its patch: (p_t, p_h, p_w, C), channel fastest
        embed.proj.bias.zero_()
        embed.proj.weight.zero_()
        for row in range(2):
            for column in range(2):
                for channel in range(4):
                    embed.proj.weight[(row * 2 + column) * 4 + channel, channel, 0, row, column] = 1
        tokens = embed(x)
    assert tokens.shape == (2, 3, 6, 16)
    assert torch.equal(tokens[1, 2, 1 * 3 + 2].view(2, 2, 4), x[1, :, 2, 2:4, 4:6].permute(1, 2, 0))
    assert torch.equal(unpatchify(tokens.flatten(1, 2), (3, 2, 3), (1, 2, 2)), x)


def test_column_comes_first_and_row_second_each_sines_then_cosines():
    table = sincos_table_2d(grid_positions(2, CPU) / 0.5, grid_positions(3, CPU) / 0.5, 8)
    row, column = 1, 2
    expected = [f(p * w) for p in (column / 0.5, row / 0.5) for f in (torch.sin, torch.cos) for w in torch.tensor([1.0, 0.01])]
    assert table.shape == (6, 8) and table.dtype == torch.float64
    assert torch.allclose(table[row * 3 + column].float(), torch.stack(expected), atol=1e-6)
    assert torch.equal(table[2, :4], sincos_table(torch.tensor([4.0], dtype=torch.float64), 4)[0])


def test_timestep_features_are_cosines_first_and_made_in_float32():
    t = torch.tensor([999.0])
    features = timestep_features(t, torch.float32)
    assert torch.allclose(features[0, [0, 128]], torch.stack([t.cos(), t.sin()]).flatten(), atol=1e-4)
    assert torch.equal(timestep_features(t, torch.bfloat16), features.bfloat16())  # 999 isn't rounded to 1000 before


def test_modulation_adds_the_blocks_table_and_keeps_the_streams_dtype():
    table, time = torch.randn(3, 8), torch.randn(2, 24)
    shift, scale, gate = modulation(table, time)
    assert torch.allclose(scale[1, 0], table[1] + time[1, 8:16])
    x = torch.randn(2, 5, 8)
    norm = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(modulate(x, shift, scale), norm * (1 + scale) + shift, atol=1e-5)
    assert modulate(x.bfloat16(), shift, scale).dtype == gated(x.bfloat16(), gate, x.bfloat16()).dtype == torch.bfloat16


def test_rotation_pairs_neighbouring_channels():
    turned = rotate_pairs(torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0]]).view(1, 1, 2, 4))[0, 0]
    torch.testing.assert_close(turned[0], torch.tensor([1.0, 0, 0, 0]))
    torch.testing.assert_close(turned[1], torch.tensor([1.0, 0, 0, 0]) * torch.cos(torch.tensor(1.0)) + torch.tensor(
        [0, 1.0, 0, 0]) * torch.sin(torch.tensor(1.0)))  # fmt: skip


def test_attention_is_plain_softmax_attention():
    torch.manual_seed(0)
    attention = DiTAttention(8, 2)
    x, text, mask = torch.randn(1, 5, 8), torch.randn(1, 4, 8), torch.tensor([[1, 1, 0, 1]]).bool()
    q = attention.to_q(x)[0].view(-1, 2, 4)
    k, v = (layer(text)[0].view(-1, 2, 4)[mask[0]] for layer in (attention.to_k, attention.to_v))
    out = torch.stack([F.softmax(q[:, h] @ k[:, h].T / 2, dim=-1) @ v[:, h] for h in range(2)], dim=1).flatten(1)
    assert torch.allclose(attention(x, text, mask)[0], attention.to_out[0](out), atol=1e-5)
