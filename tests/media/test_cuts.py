"""Cuts: two shots in one clip, and what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from phys_pipeline.media import Video, read_video, write_video
from phys_pipeline.media.cuts import cut_positions, has_cut, thumbnails

SAMPLES = Path(__file__).parents[2] / "samples" / "clips"


def test_cuts(tmp_path):
    still = read_video(SAMPLES / "mdn_frog.webm", max_frames=12).frames
    other = read_video(SAMPLES / "mdn_rabbit.webm", max_frames=12, size=still.shape[1:3]).frames
    assert cut_positions(np.concatenate([still, other])) == [12]
    assert cut_positions(thumbnails(np.concatenate([still, other]))) == [12]
    assert cut_positions(still) == [] and cut_positions(still[:2]) == []
    noise = np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), np.uint8)
    assert cut_positions(noise) == []  # everything changes all the time
    write_video(tmp_path / "c.mp4", Video.from_frames(np.concatenate([still, other]), 8.0))
    assert has_cut(tmp_path / "c.mp4")
    assert not any(has_cut(path) for path in SAMPLES.iterdir() if path.suffix in (".gif", ".webm"))
