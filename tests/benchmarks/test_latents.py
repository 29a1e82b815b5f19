"""The latent benchmark: its clips, the stand-ins for time stride 4, what is measured on latents, and the whole run in small."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from benchmarks import latents
from benchmarks.judging import judge
from benchmarks.latents_clips import (
    CELLS,
    FRAMES,
    STAND_INS,
    Encoder,
    LinearCompression,
    compress,
    for_tuning,
    groups_of,
    long_clip,
    panned_texture,
)
from benchmarks.latents_conditions import Condition, candidates, tried
from benchmarks.latents_frames import (
    CROP,
    INNER,
    KINDS,
    broken,
    channel_shares,
    crops_of,
    first_frame,
    first_frame_cost,
    inner,
    judge_real,
    read_latents,
)
from benchmarks.latents_motion import View, estimated, summarise, truth_of
from benchmarks.latents_scores import decorrelated, losses, score, standard_deviations, strongest_change


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def linear() -> LinearCompression:
    return LinearCompression([drawn(1, 4, 13, 6, 6)])


def test_the_tuning_part_is_a_third_of_every_three_rounds_and_meets_every_cell():
    seeds = [seed for seed in range(3 * len(CELLS)) if for_tuning(seed)]
    assert len(seeds) == len(CELLS)
    assert {seed % len(CELLS) for seed in seeds} == set(range(len(CELLS)))


def test_a_long_clip_is_a_function_of_its_seed_and_moves_as_its_cell_says():
    clip, truth, kind = long_clip(0)
    again, other = long_clip(0)[0], long_clip(len(CELLS))[0]
    assert kind == "translation" and truth.rotation == truth.zoom == 0 and abs(truth.velocity_x) + abs(truth.velocity_y) > 0
    assert clip.pixels.shape == (FRAMES, 128, 128, 3) and np.array_equal(clip.pixels, again.pixels)
    assert not np.array_equal(clip.pixels, other.pixels)


def test_equal_frames_have_equal_latents_and_the_grid_is_an_eighth():
    frames = np.random.default_rng(0).integers(0, 255, (3, 32, 48, 3), dtype=np.uint8)
    encoder = Encoder()
    codes = encoder([frames, frames[[2, 2, 0]]])
    assert codes.shape == (2, 16, 3, 4, 6)
    assert torch.equal(codes[1, :, 0], codes[0, :, 2]) and torch.equal(codes[1, :, 2], codes[0, :, 0])
    alone = encoder.family.encode_video(encoder.vae, torch.from_numpy(frames).permute(3, 0, 1, 2)[None].float() / 255)
    assert torch.allclose(codes[0], alone[0], atol=1e-5)


def test_groups_are_causal():
    groups = groups_of(torch.arange(9.0).view(1, 1, 9, 1, 1))[0, :, :, 0, 0]
    assert groups.T.tolist() == [[0, 0, 0, 0], [1, 2, 3, 4], [5, 6, 7, 8]]
    with pytest.raises(ValueError, match="1 \\+ 4k"):
        groups_of(torch.zeros(1, 1, 8, 1, 1))


def test_stand_ins_hold_the_right_frames(linear):
    codes = drawn(2, 4, 13, 6, 6, seed=1)
    assert torch.equal(compress(codes, "every", linear), codes)
    assert torch.equal(compress(codes, "fourth", linear), codes[:, :, [0, 4, 8, 12]])
    mean = compress(codes, "mean", linear)
    assert torch.allclose(mean[:, :, 0], codes[:, :, 0]) and torch.allclose(
        mean[:, :, 2], codes[:, :, 5:9].mean(dim=2), atol=1e-6
    )
    assert compress(codes, "linear", linear).shape == (2, 4, 4, 6, 6)
    with pytest.raises(ValueError, match=", ".join(STAND_INS)):
        compress(codes, "median", linear)


def test_linear_compression_is_orthonormal_and_keeps_all_of_what_its_components_span(linear):
    assert torch.allclose(linear.basis @ linear.basis.T, torch.eye(4), atol=1e-5) and 0 < linear.kept < 1
    still = drawn(1, 4, 1, 6, 6, seed=2).expand(-1, -1, 13, -1, -1)
    exact = LinearCompression([still + 0 * drawn(1, 4, 13, 6, 6)])
    assert exact.kept == pytest.approx(1)
    assert compress(still, "linear", exact).square().sum() == pytest.approx(float(groups_of(still).square().sum()), rel=1e-4)


def test_channels_can_be_whitened():
    codes = drawn(2, 3, 5, 8, 8) * torch.tensor([0.1, 1.0, 5.0]).view(1, 3, 1, 1, 1)
    codes = codes + codes.flip(1)
    assert torch.allclose(standard_deviations(codes).std(dim=(2, 3, 4)), torch.ones(2, 3), atol=1e-4)
    for item in decorrelated(codes[:, :2]):
        assert torch.allclose(torch.cov(item.flatten(1)), torch.eye(2), atol=1e-3)
    assert strongest_change(codes).shape == (2, 1, 5, 8, 8)


def test_the_peer_is_low_for_even_motion():
    even = torch.arange(6.0).view(1, 1, 6, 1, 1).expand(1, 1, 6, 4, 4)
    uneven = even.clone()
    uneven[:, :, 3] += 2
    found = losses(torch.cat([even, uneven]), Condition("", "every", peer=True))
    assert found[0] == 0 and found[1] > 1


def test_scores_are_kept_on_file(tmp_path):
    video, _ = panned_texture(1.3, 3, frames=9)
    clip, _, _ = long_clip(0)
    clip = type(clip)("synthetic", "small", 0, (video[:, :, :48, :48].permute(1, 2, 3, 0) * 255).round().byte().numpy())
    encoder = Encoder()
    linear = LinearCompression([encoder([clip.pixels])])
    conditions = [Condition("a", "pixels", {"patches": 1}), Condition("b", "linear", {"patches": 1}, drop_first=True)]
    rows = score([clip], conditions, encoder, linear, tmp_path / "scores.jsonl")
    size = (tmp_path / "scores.jsonl").stat().st_size
    assert score([clip], conditions, encoder, linear, tmp_path / "scores.jsonl") == rows
    assert (tmp_path / "scores.jsonl").stat().st_size == size
    assert {(o.kind, o.strength) for o in judge([rows[0]])} == {(o.kind, o.strength) for o in judge([rows[1]])}
    assert rows[0].copies and set(rows[0].copies).isdisjoint(rows[0].unseen)


def test_estimates_are_in_pixels_and_per_picture():
    video, truth = panned_texture(2.5, 1, frames=17)
    found = estimated(View("", "pixels", cell=1, step=4), video[:, ::4])
    assert found[:2] == pytest.approx(truth_of(truth)[:2], rel=0.05)
    row = summarise("view", "rotation", np.array([[0, 0, 0.1, 0], [0, 0, -0.1, 0]]), np.array([[0, 0, 0.2, 0], [0, 0, 0.1, 0]]))
    assert (row.clips, row.signs) == (2, 1) and row.median == pytest.approx(1.25)


def test_a_first_frame_that_is_like_the_others_has_ratios_of_one():
    codes = drawn(4, 9, 16, 16)
    like = first_frame(codes)
    assert [like.size, like.roughness, like.step] == pytest.approx([1, 1, 1], abs=0.1)
    codes[:, 0] *= 2
    assert first_frame(codes).size == pytest.approx(2, rel=0.1)
    assert abs(first_frame_cost(drawn(2, 1, 12, 12).expand(-1, 9, -1, -1), Condition("", "linear"))) < 1e-6


def test_channel_shares_tell_still_from_moving():
    codes = drawn(2, 12, 8, 8)
    codes[0] = codes[0, :1]  # channel 0 never changes
    shares = channel_shares([codes])
    assert (
        shares.moving[0] == pytest.approx(0, abs=1e-9)
        and shares.moving[1] > 0.8
        and shares.moving_energy.sum() == pytest.approx(1)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_latents_can_be_broken(kind):
    crop = drawn(3, 12, CROP, CROP)
    copy, again = broken(crop, kind, 1.0, 5), broken(crop, kind, 1.0, 5)
    assert copy.shape == (3, 12, INNER, INNER) and torch.equal(copy, again)
    assert not torch.equal(copy, inner(crop))
    assert torch.isfinite(copy).all()


def test_shifts_move_content_and_bring_in_real_cells():
    crop = drawn(1, 2, CROP, CROP)
    moved = inner(crop, right=2, down=-1)
    assert torch.equal(moved[:, :, :-1, 2:], inner(crop)[:, :, 1:, :-2])
    with pytest.raises(ValueError, match="unknown kind"):
        broken(crop, "melt", 1.0, 0)


def test_crops_do_not_overlap_and_real_latents_are_judged(tmp_path):
    frames = torch.stack([drawn(2, 24, 60, seed=4)[:, :, t : t + 44] for t in range(8)], dim=1)  # moves by a cell a frame
    assert [crop.shape[2:] for crop in crops_of(frames)] == [(CROP, CROP)] * 2
    outcomes = judge_real("clip", frames, [Condition("peer", "real", peer=True)])["peer"]
    assert {outcome.kind for outcome in outcomes} <= set(KINDS) and len({o.start for o in outcomes}) == 2
    save_file({"latents": frames[None].contiguous()}, tmp_path / "clip.safetensors")
    assert torch.equal(read_latents(tmp_path)["clip"], frames)
    save_file({"codes": frames}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="no tensor 'latents'"):
        read_latents(tmp_path)


def test_candidates_differ():
    found = candidates()
    assert len({condition.label for condition in found}) == len(found) == len({condition.config for condition in found})


def test_the_page_has_every_section(tmp_path, monkeypatch):
    monkeypatch.setattr(latents, "SPEEDS", (2.3,))
    monkeypatch.setattr(latents, "candidates", lambda: [tried(latents.CHOSEN)])
    monkeypatch.setattr(latents, "refinements", lambda chosen: [Condition("chosen", "linear", chosen)])
    monkeypatch.setattr(latents, "on_fewer_clips", lambda chosen: [])
    monkeypatch.setattr(latents, "long_windows", lambda folder, most: [])
    monkeypatch.setattr(latents, "reported", lambda chosen: [Condition(latents.BASE, "linear", chosen)])
    save_file({"latents": drawn(1, 16, 9, 20, 20)}, tmp_path / "noise.safetensors")
    latents.main([
        "--synthetic", "3", "--pans", "1", "--scores", str(tmp_path / "s.jsonl"), "--report", str(tmp_path / "r.md"),
        "--latents", str(tmp_path),
    ])  # fmt: skip
    text = (tmp_path / "r.md").read_text()
    for title in ("Tuning", "Pairs: synthetic", "Estimates", "first latent frame", "Speed", "Channels", "Real latents", "Limits"):
        assert title in text
    assert str(tmp_path) not in text
