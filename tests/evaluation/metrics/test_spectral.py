"""Spectral metrics are those of the motion report, one report per preset and clip."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import measure, texture

from phys_pipeline import scoring
from phys_pipeline.evaluation import Settings, VideoSample
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metrics.spectral import Spectral, SpectralPaper, motion_report
from phys_pipeline.media import Video, write_video


def test_values_are_those_of_the_report():
    clip = texture(frames=16, velocity=(1.0, 0.0))
    found = measure(clip, Spectral, SpectralPaper, fps=12.0)
    report = scoring.score_video(Video.from_frames(clip, 12.0))
    assert found["spectral_loss"].value == report.loss["composite"]
    for part in ("translation", "rotation", "scaling", "pace", "coherence"):
        assert found[f"spectral_{part}"].value == report.loss[part]
    assert found["spectral_dynamic_degree"].value == report.dynamic_degree
    assert found["spectral_loss"].details["dominant"] == "translation"
    paper = scoring.score_video(Video.from_frames(clip, 12.0), preset="paper")
    assert found["spectral_paper"].value == paper.loss["composite"] != report.loss["composite"]


def test_broken_motion_costs_more_and_a_still_clip_nothing():
    clip = texture(frames=16, velocity=(1.0, 0.0))
    loss = {
        name: measure(frames, Spectral, fps=12.0)["spectral_loss"].value
        for name, frames in {
            "clean": clip,
            "shuffled": clip[np.random.default_rng(0).permutation(16)],
            "still": np.repeat(clip[:1], 16, axis=0),
        }.items()
    }
    assert loss["still"] == 0 < loss["clean"] < loss["shuffled"]


def test_an_unknown_rate_is_skipped_and_the_samples_rate_wins_over_the_files(tmp_path):
    clip = texture(frames=16, velocity=(1.0, 0.0))
    assert {r.status for r in measure(clip, Spectral, SpectralPaper, fps=None).values()} == {"skipped"}
    write_video(tmp_path / "a.mp4", Video.from_frames(clip, 12.0))
    speeds = {}
    for fps in (None, 6.0):
        sample = VideoSample("a", "m", path=tmp_path / "a.mp4", fps=fps)
        speeds[fps] = motion_report(DecodedClip(sample, sample.decode())).velocity_px_per_s[0]
    assert speeds[6.0] == pytest.approx(speeds[None] / 2, rel=1e-3)


def test_one_report_per_preset_and_clip(monkeypatch):
    calls = []
    real = scoring.score_video
    monkeypatch.setattr(scoring, "score_video", lambda video, **options: calls.append(options) or real(video, **options))
    sample = VideoSample("a", "m", frames=texture(frames=6, velocity=(1.0, 0.0)), fps=12.0)
    clip = DecodedClip(sample, sample.decode())
    for _ in range(2):
        Spectral(Settings()).compute(clip)
        SpectralPaper(Settings()).compute(clip)
    assert [call["preset"] for call in calls] == ["calibrated", "paper"]


def test_the_translation_slice_may_pass_one():
    limits = {info.key: info.high for info in Spectral.infos}  # 1.05 was measured on a real clip played there and back
    assert limits["spectral_translation"] is None and limits["spectral_rotation"] == limits["spectral_scaling"] == 1.0
