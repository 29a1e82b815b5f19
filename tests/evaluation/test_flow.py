"""Optical flow: known shifts, the visibility check, which backend is taken, and RAFT's padding with a stand-in for its model."""

from __future__ import annotations

import importlib.util
import sys
import types

import numpy as np
import pytest
import torch
from evaluation_clips import texture

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.evaluation import Settings
from phys_pipeline.evaluation import flow as module
from phys_pipeline.evaluation.flow import (
    DisFlow,
    RaftFlow,
    flow_backend,
    flow_estimator,
    flow_name,
    is_standin,
    is_visible,
    warp_back,
    working_size,
)

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


def test_working_size_keeps_the_aspect_and_never_enlarges():
    assert working_size(720, 1280) == (256, 455)
    assert working_size(1280, 720) == (455, 256)
    assert working_size(64, 96) == (64, 96)


def test_dis_finds_a_known_shift_and_repeats_exactly():
    clip = texture(velocity=(3.0, -2.0))
    estimate = DisFlow()
    found = estimate(clip[0], clip[1])
    assert found.shape == (64, 64, 2) and found.dtype == np.float32
    assert np.median(found.reshape(-1, 2), axis=0) == pytest.approx([3, -2], abs=0.1)
    assert np.array_equal(found, estimate(clip[0], clip[1])) and np.array_equal(found, DisFlow()(clip[0], clip[1]))


def test_warping_back_undoes_a_whole_shift():
    clip = texture(velocity=(2.0, 1.0)).astype(np.float32)
    flow = np.broadcast_to(np.float32([2, 1]), (64, 64, 2)).copy()
    assert np.abs(warp_back(clip[1], flow) - clip[0])[:-1, :-2].max() <= 1.0  # but for rounding to bytes


def test_a_pixel_is_visible_if_it_stays_in_the_frame_and_the_way_back_returns_it():
    forward = np.zeros((20, 30, 2), np.float32)
    forward[..., 0] = 4
    backward = -forward
    backward[:10] = 0  # something else is there: the way back does not return
    seen = is_visible(forward, backward)
    assert seen[10:, :26].all() and not seen[:, 26:].any() and not seen[:10].any()


def test_auto_is_dis_without_torchvision_and_names_agree(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchvision" else find(name))
    assert isinstance(flow_estimator(Settings()), DisFlow)
    assert flow_estimator(Settings()).name == flow_name(Settings()) and is_standin(flow_name(Settings()))
    with pytest.raises(ConfigError, match="pip install torchvision"):
        flow_estimator(Settings(flow="raft"))
    assert "pip install torchvision" in flow_backend(Settings(flow="raft")).reason
    assert flow_name(Settings(flow="raft")) == "none" or HAS_TORCHVISION


def test_an_unknown_estimator_is_an_error():
    with pytest.raises(ConfigError, match="auto, raft, dis"):
        flow_estimator(Settings(flow="farneback"))


def test_without_opencv_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ConfigError, match=r'pip install "phys-pipeline\[flow\]"'):
        DisFlow()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not flow_backend(Settings()).ok


class ConstantRaft(torch.nn.Module):
    """Takes what RAFT takes, and says that everything moves by (3, -1) inside the frame it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: list[torch.Tensor] = []

    def forward(self, first: torch.Tensor, second: torch.Tensor, num_flow_updates: int) -> list[torch.Tensor]:
        assert first.shape == second.shape and num_flow_updates == 20
        self.seen = [first, second]
        flow = first.new_zeros(len(first), 2, *first.shape[2:])
        flow[:, 0], flow[:, 1] = 3, -1
        return [flow * 0, flow]


@pytest.fixture
def torchvision(monkeypatch, tmp_path):
    """A torchvision whose RAFT is :class:`ConstantRaft`; returns (models made, folder of weights)."""
    made: list[ConstantRaft] = []

    def raft_large(weights=None):
        assert weights is None
        made.append(ConstantRaft())
        return made[-1]

    optical_flow = types.ModuleType("torchvision.models.optical_flow")
    optical_flow.raft_large = raft_large
    optical_flow.Raft_Large_Weights = {"C_T_V2": types.SimpleNamespace(url="https://example.org/raft_large_C_T_V2.pth")}
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "torchvision.models.optical_flow", optical_flow)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "torchvision" else find(name))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", lambda *_, **__: pytest.fail("nothing may be downloaded"))
    return made, tmp_path


def test_raft_gets_padded_pictures_in_minus_one_to_one_and_its_flow_is_cut_back(torchvision):
    made, folder = torchvision
    torch.save(ConstantRaft().state_dict(), folder / "raft_large_C_T_V2.pth")
    estimate = flow_estimator(Settings(weights_dir=str(folder), offline=True))
    assert isinstance(estimate, RaftFlow) and not is_standin(estimate.name)
    frames = np.zeros((2, 90, 205, 3), np.uint8)
    frames[0], frames[1, :, :, 0] = 255, 255
    found = estimate(*frames)
    assert found.shape == (90, 205, 2) and (found == [3, -1]).all()
    first, second = made[-1].seen
    assert first.shape == (1, 3, 128, 208)
    assert (first == 1).all() and (second[:, 0] == 1).all() and (second[:, 1:] == -1).all()  # padding repeats the border


def test_raft_without_weights_downloads_nothing_offline_and_auto_falls_back(torchvision):
    _, folder = torchvision
    assert isinstance(flow_estimator(Settings(offline=True)), DisFlow)
    with pytest.raises(ModelError, match=r"raft_large_C_T_V2\.pth into weights_dir"):
        flow_estimator(Settings(flow="raft", offline=True))
    (folder / "raft_large_C_T_V2.pth").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="delete it"):
        flow_estimator(Settings(flow="raft", weights_dir=str(folder)))


@pytest.mark.skipif(not HAS_TORCHVISION, reason="torchvision is not installed")
def test_the_real_raft_runs_with_random_weights(monkeypatch, tmp_path):
    from torchvision.models.optical_flow import raft_large

    torch.manual_seed(0)
    estimate = module.RaftFlow(raft_large(weights=None).state_dict())
    found = estimate(*texture(velocity=(1.0, 0.0))[:2])
    assert found.shape == (64, 64, 2) and np.isfinite(found).all()
