import math
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from phys_pipeline.errors import ConfigError
from training.objectives import flow as module
from training.objectives.flow import FlowConsistency, flow_estimator, smoothness, visible, warp

SIZE = 48


def texture(seed=0):
    """A smooth random picture (3, 96, 96)."""
    noise = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(noise, (96, 96), mode="bicubic", align_corners=False)[0].clamp(0, 1)


def shifted(frames=4, step=2, seed=0):
    """A window that slides by `step` pixels to the left over the texture: its content moves right."""
    picture = texture(seed)
    views = [picture[:, 20 : 20 + SIZE, 40 - step * t : 40 - step * t + SIZE] for t in range(frames)]
    return torch.stack(views, dim=1)[None]


def known(first, second):
    """The true flow of `shifted`, forward or backward, told apart by which frame fits where."""
    forward = (first[..., :-2] - second[..., 2:]).abs().mean(dim=(1, 2, 3))
    backward = (first[..., 2:] - second[..., :-2]).abs().mean(dim=(1, 2, 3))
    flow = torch.zeros(len(first), 2, *first.shape[2:])
    flow[:, 0] = torch.where(forward < backward, 2.0, -2.0)[:, None, None]
    return flow


def test_warp_of_a_known_shift():
    """Where frame t moved right by 2, the next frame's pixel p is frame t's pixel p - 2: the backward flow is what it samples."""
    video = shifted()
    back = torch.zeros(1, 2, SIZE, SIZE)
    back[:, 0] = -2.0
    assert torch.allclose(warp(video[:, :, 0], back)[..., 2:], video[:, :, 1][..., 2:], atol=1e-5)
    assert not torch.allclose(warp(video[:, :, 0], -back)[..., 2:-2], video[:, :, 1][..., 2:-2], atol=1e-2)


def test_visible_needs_the_way_back_and_a_place_in_the_frame():
    there = torch.zeros(1, 2, 10, 12)
    there[:, 0] = 3.0
    mask = visible(there, -there)
    assert (mask[..., :9] == 1).all() and (mask[..., 9:] == 0).all() and mask.shape == (1, 1, 10, 12)
    assert (visible(there, there) == 0).all()


def test_coherent_motion_costs_nothing_with_its_true_flow_and_jitter_costs():
    loss = FlowConsistency(known, smoothness=0.0)
    clean = loss(shifted())
    assert clean.shape == (1,) and clean.item() < 1e-4
    flicker = shifted() * torch.tensor([1.0, 0.7, 1.0, 0.7]).view(1, 1, 4, 1, 1)
    assert loss(flicker).item() > 0.05


def test_gradient_reaches_the_pixels_not_the_flow():
    video = (shifted() * torch.tensor([1.0, 0.7, 1.0, 0.7]).view(1, 1, 4, 1, 1)).requires_grad_()
    asked = []

    def estimator(first, second):
        asked.append(first.requires_grad or torch.is_grad_enabled())
        return known(first, second)

    smooth, rough = FlowConsistency(estimator, 0.0), FlowConsistency(estimator, 5.0)
    (plain,) = torch.autograd.grad(smooth(video).sum(), video)
    (other,) = torch.autograd.grad(rough(video).sum(), video)
    assert plain.abs().sum() > 0 and torch.equal(plain, other) and not any(asked)


def test_pairs_that_see_too_little_are_left_out_and_clips_do_not_mix():
    loss = FlowConsistency(lambda a, b: torch.full((len(a), 2, *a.shape[2:]), 30.0), 0.1)  # everything leaves the frame
    assert loss(shifted()).item() == 0.0
    exact = FlowConsistency(known)
    batch = torch.cat([shifted(seed=0), shifted(seed=1) * 0.8])
    assert torch.allclose(exact(batch), torch.cat([exact(clip[None]) for clip in batch]), atol=1e-6)


def test_smoothness_of_constant_flow_is_zero_and_edges_excuse_a_jump():
    flow = torch.zeros(1, 2, 8, 8)
    flow[:, 0, :, 4:] = 4.0
    grey, edge = torch.full((1, 3, 8, 8), 0.5), torch.zeros(1, 3, 8, 8)
    edge[..., 4:] = 1.0
    assert smoothness(torch.ones(1, 2, 8, 8), grey) == 0
    assert smoothness(flow, edge).item() == pytest.approx(math.exp(-10) * smoothness(flow, grey).item(), rel=1e-4)


def test_dis_finds_a_known_shift():
    pytest.importorskip("cv2")
    name, estimate = flow_estimator("dis", torch.device("cpu"))
    video = shifted()
    flow = estimate(video[:, :, 0], video[:, :, 1])
    assert name == "dis" and flow.shape == (1, 2, SIZE, SIZE)
    assert flow[0, 0, 10:-10, 10:-10].median().item() == pytest.approx(2.0, abs=0.2)
    assert FlowConsistency(estimate)(video).item() < 0.02


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs torchvision: pip install torchvision"):
        flow_estimator("raft", torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"flow_estimator=dis needs cv2: pip install .phys-pipeline\[flow\]"):
        flow_estimator("auto", torch.device("cpu"))


def test_raft_takes_sizes_that_are_multiples_of_eight_and_gives_pixels_of_the_clip(monkeypatch):
    asked = []

    class Raft(torch.nn.Module):
        def forward(self, first, second, num_flow_updates):
            asked.append((tuple(first.shape), float(first.min()), float(first.max()), num_flow_updates))
            return [None, torch.ones(len(first), 2, *first.shape[2:])]

    models = types.ModuleType("torchvision.models")
    models.optical_flow = types.SimpleNamespace(
        raft_large=lambda weights: Raft(), Raft_Large_Weights=types.SimpleNamespace(DEFAULT="weights")
    )
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    flow = module._raft(torch.device("cpu"))(torch.zeros(3, 3, 64, 150), torch.ones(3, 3, 64, 150))
    assert asked == [((3, 3, 128, 152), -1.0, -1.0, 12)] and flow.shape == (3, 2, 64, 150)
    assert torch.allclose(flow[:, 0], torch.tensor(150 / 152)) and torch.allclose(flow[:, 1], torch.tensor(0.5))
