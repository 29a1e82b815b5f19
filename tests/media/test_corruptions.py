"""Corruptions: exact reorderings, known warps, amplitudes that scale with width and strength."""

import math

import numpy as np
import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.media import CORRUPTIONS, corrupt
from phys_pipeline.media.warping import similarity_warp

REORDERINGS = ("reverse", "stutter", "shuffle", "cut")
RANDOM = ("jitter", "walk", "shuffle", "teleport", "rubber", "flicker")


def clip(count=16, height=32, width=40, seed=0):
    """Smooth waves that move: (3, T, H, W)."""
    t, y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in (count, height, width)), indexing="ij")
    waves = [torch.sin(x / 4 + t / 3 + k + seed) * torch.cos(y / 5 - t / 4 + k) for k in range(3)]
    return torch.stack(waves) * 0.4 + 0.5


def numbered(count):
    """Frame k has the value k / 100 everywhere."""
    return (torch.arange(count) / 100.0).reshape(1, count, 1, 1).expand(3, -1, 4, 6).contiguous()


def order(result):
    return (result[0, :, 0, 0] * 100).round().int().tolist()


def blobs(count, size, sigma=0.06):
    """A bright spot in the middle of ``count`` equal frames, (1, T, H, W)."""
    axis = (torch.arange(size) - (size - 1) / 2) / size
    spot = torch.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * sigma**2))
    return spot.expand(1, count, size, size).contiguous()


def centroid(frames):
    """Positions (T, 2) x, y in pixels from the centre of frames (T, H, W)."""
    height, width = frames.shape[-2:]
    mass = frames.sum((1, 2))
    x = (frames.sum(1) * (torch.arange(width) - (width - 1) / 2)).sum(1) / mass
    y = (frames.sum(2) * (torch.arange(height) - (height - 1) / 2)).sum(1) / mass
    return torch.stack([x, y], 1)


def test_there_are_nine():
    assert len(CORRUPTIONS) == 9 == len(set(CORRUPTIONS))


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("strength", [0.1, 0.5, 1.0])
def test_contract(kind, strength):
    video = clip()
    before = video.clone()
    result = corrupt(video, kind, strength, 7)
    assert result.shape == video.shape and result.dtype == video.dtype and result.device == video.device
    assert result.min() >= 0 and result.max() <= 1 and torch.isfinite(result).all()
    assert (result - video).abs().mean() > 1e-3  # it does something
    torch.testing.assert_close(result, corrupt(video, kind, strength, 7), rtol=0, atol=0)
    torch.testing.assert_close(video, before, rtol=0, atol=0)  # the input is left alone
    assert corrupt(video, kind, 0.0, 7) is video


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_batch_and_single_agree(kind):
    batch = torch.stack([clip(), clip(seed=2)])
    result = corrupt(batch, kind, 1.0, 3)
    torch.testing.assert_close(result[0], corrupt(batch[0], kind, 1.0, 3))
    assert result.shape == batch.shape


@pytest.mark.parametrize("kind", RANDOM)
def test_seed_matters(kind):
    assert not torch.equal(corrupt(clip(), kind, 1.0, 0), corrupt(clip(), kind, 1.0, 1))


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(kind, dtype):
    result = corrupt(clip().to(dtype), kind, 1.0, 0)
    assert result.dtype == dtype
    assert (result.float() - corrupt(clip(), kind, 1.0, 0)).abs().mean() < 0.01


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_short_clips(kind, count):
    for strength in (0.3, 1.0):
        assert corrupt(clip(count), kind, strength, 0).shape == (3, count, 32, 40)


@pytest.mark.parametrize("kind", ["jitter", "walk", "teleport", "rubber", "flicker"])
def test_stronger_means_farther(kind):
    distances = [(corrupt(clip(), kind, strength, 5) - clip()).abs().mean().item() for strength in (0.1, 0.3, 1.0)]
    assert distances[0] < distances[1] < distances[2]


def test_reverse_goes_there_and_back():
    assert order(corrupt(numbered(16), "reverse", 1.0, 0)) == [*range(8), 8, 7, 6, 5, 4, 3, 2, 1]
    assert order(corrupt(numbered(16), "reverse", 0.5, 0)) == [*range(12), 12, 11, 10, 9]
    assert order(corrupt(numbered(5), "reverse", 1.0, 0)) == [0, 1, 2, 3, 2]
    assert order(corrupt(numbered(16), "reverse", 0.01, 0)) == [*range(15), 13]
    assert order(corrupt(numbered(3), "reverse", 1.0, 0)) == [0, 1, 0]


def test_stutter_holds():
    assert order(corrupt(numbered(10), "stutter", 1.0, 0)) == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert order(corrupt(numbered(6), "stutter", 0.5, 0)) == [0, 0, 2, 2, 4, 4]
    assert order(corrupt(numbered(7), "stutter", 0.7, 0)) == [0, 0, 0, 3, 3, 3, 6]
    assert order(corrupt(numbered(4), "stutter", 0.01, 0)) == [0, 0, 2, 2]


@pytest.mark.parametrize(("strength", "changed"), [(1.0, 4), (0.5, 2), (0.01, 1)])
def test_shuffle_permutes_inside_groups_of_four(strength, changed):
    for seed in range(20):
        got = order(corrupt(numbered(18), "shuffle", strength, seed))
        groups = [got[k : k + 4] for k in range(0, 16, 4)]
        assert [sorted(group) for group in groups] == [list(range(k, k + 4)) for k in range(0, 16, 4)]
        assert sum(group != sorted(group) for group in groups) == changed
        assert got[16:] == [16, 17]


def test_reorderings_take_whole_frames():
    for kind in REORDERINGS[:3]:
        video = clip()
        flat = {frame.numpy().tobytes() for frame in video.transpose(0, 1)}
        assert all(frame.numpy().tobytes() in flat for frame in corrupt(video, kind, 1.0, 0).transpose(0, 1).contiguous())


def test_cut_replaces_the_end():
    video, other = clip(), clip(seed=9)
    result = corrupt(video, "cut", 1.0, 0, other=other)
    torch.testing.assert_close(result[:, :8], video[:, :8], rtol=0, atol=0)
    torch.testing.assert_close(result[:, 8:], other[:, :8], rtol=0, atol=0)
    half = corrupt(video, "cut", 0.5, 0, other=other)
    torch.testing.assert_close(half[:, :12], video[:, :12], rtol=0, atol=0)
    torch.testing.assert_close(half[:, 12:], other[:, :4], rtol=0, atol=0)
    alone = corrupt(video, "cut", 1.0, 0)
    torch.testing.assert_close(alone[1, 8], 1 - video[0, 15].flip(0, 1))
    assert (alone[:, 8] - alone[:, 7]).abs().mean() > 3 * (video[:, 8] - video[:, 7]).abs().mean()  # a real jump
    with pytest.raises(ConfigError, match="longer"):
        corrupt(video, "cut", 1.0, 0, other=other[:, :3])


def test_teleport_skips_frames_of_a_longer_source():
    source = numbered(24)
    for strength, skip in ((1.0, 6), (0.5, 3), (0.01, 1)):
        got = order(corrupt(source[:, :16], "teleport", strength, 0, source=source))
        assert got == [*range(8), *range(8 + skip, 16 + skip)]
    assert order(corrupt(source[:, :16], "teleport", 1.0, 0, source=source[:, :18]))[8] == 10  # no more than there is
    with pytest.raises(ConfigError, match="source"):
        corrupt(source, "teleport", 1.0, 0, source=source)


@pytest.mark.parametrize("size", [64, 128])
def test_teleport_without_a_source_jumps_by_a_share_of_the_width(size):
    path = centroid(corrupt(blobs(8, size), "teleport", 1.0, 4)[0])
    jump = (path[4] - path[3]).norm().item()
    assert jump == pytest.approx(0.15 * size, rel=0.03)
    assert (path[1:4] - path[0]).abs().max() < 1e-3 and (path[5:] - path[4]).abs().max() < 1e-3


@pytest.mark.parametrize("size", [48, 96])
def test_jitter_amplitude_scales_with_the_width(size):
    full, half = (centroid(corrupt(blobs(400, size), "jitter", s, 1)[0]) for s in (1.0, 0.5))
    expected = 1.5 / 64 * size
    assert full.std().item() == pytest.approx(expected, rel=0.1)
    assert half.std().item() == pytest.approx(expected / 2, rel=0.1)
    steps = full.diff(dim=0).std().item()
    assert steps == pytest.approx(expected * math.sqrt(2), rel=0.1)  # frames are independent


def test_walk_drifts_with_smaller_steps():
    path = centroid(corrupt(blobs(16, 64), "walk", 1.0, 1)[0])
    paths = [centroid(corrupt(blobs(16, 64), "walk", 0.5, seed)[0]) for seed in range(40)]
    steps = torch.stack([p.diff(dim=0) for p in paths])[:, :4]
    assert steps.std().item() == pytest.approx(0.5 * 0.7 * 1.5, rel=0.15)
    spread = torch.stack(paths).square().mean((0, 2))
    assert spread[15] > 4 * spread[1] and path.isfinite().all()


def test_flicker_changes_brightness_only():
    video = torch.full((3, 500, 2, 2), 0.3)
    gain = corrupt(video, "flicker", 1.0, 2)[0, :, 0, 0] / 0.3
    assert gain.mean().item() == pytest.approx(1.0, abs=0.04) and gain.std().item() == pytest.approx(0.25, rel=0.1)
    result = corrupt(video, "flicker", 1.0, 2)
    assert (result - result[:1, :, :1, :1]).abs().max() < 1e-6


def test_rubber_bends_by_six_percent_of_the_width():
    size = 96
    ramp = ((torch.arange(size) + 0.5) / size).expand(1, 12, size, size).contiguous()  # brightness is position
    moved = (corrupt(ramp, "rubber", 1.0, 0) - ramp)[0, :, :, 12:-12]
    assert moved.abs().max().item() == pytest.approx(0.06, rel=0.03)
    assert (moved[1:] - moved[:-1]).abs().amax((1, 2)).min() > 0.02  # another bend in each frame


def test_warp_shifts_whole_pixels_exactly():
    frames = torch.rand(1, 2, 1, 8, 10)
    moved = similarity_warp(frames, torch.tensor([[[2 / 10, 3 / 10, 0.0, 0.0]]]))
    torch.testing.assert_close(moved[..., 3:, 2:], frames[..., :5, :8], atol=1e-5, rtol=0)
    torch.testing.assert_close(moved[..., :3, 2:], frames[..., :3, :8].flip(-2), atol=1e-5, rtol=0)  # mirrored at the border


def test_warp_turns_clockwise_and_grows():
    frames = torch.rand(1, 1, 1, 9, 9)
    turned = similarity_warp(frames, torch.tensor([[[0.0, 0.0, math.pi / 2, 0.0]]]))
    expected = np.rot90(frames[0, 0, 0].numpy(), -1)  # clockwise
    np.testing.assert_allclose(turned[0, 0, 0].numpy(), expected, atol=1e-4)
    grown = similarity_warp(blobs(1, 64)[None], torch.tensor([[[0.0, 0.0, 0.0, math.log(1.5)]]]))
    assert grown.sum() / blobs(1, 64).sum() == pytest.approx(2.25, rel=0.02)


def test_identity_warp():
    video = clip()[None]
    torch.testing.assert_close(similarity_warp(video, torch.zeros(1, 16, 4)), video, atol=1e-5, rtol=0)


def test_errors_are_for_people():
    with pytest.raises(ConfigError, match=r"jitter.*walk.*cut"):
        corrupt(clip(), "melt", 1.0, 0)
    for strength in (-0.1, 1.01, float("nan")):
        with pytest.raises(ConfigError, match="strength"):
            corrupt(clip(), "jitter", strength, 0)
    for bad in ((clip() * 255).to(torch.uint8), clip()[0], np.zeros((3, 4, 8, 8)), torch.zeros(3, 0, 4, 4)):
        with pytest.raises(ConfigError, match="float tensor"):
            corrupt(bad, "jitter", 1.0, 0)
    with pytest.raises(ConfigError, match="resize"):
        corrupt(clip(), "cut", 1.0, 0, other=clip(height=16))


def test_global_random_state_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    for kind in CORRUPTIONS:
        corrupt(clip(4, 8, 8), kind, 1.0, 5)
    torch.testing.assert_close(torch.rand(3), expected)
