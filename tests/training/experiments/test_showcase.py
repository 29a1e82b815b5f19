"""The page of videos: prompts by the rule, every column in its place."""

from __future__ import annotations

import numpy as np

from phys_pipeline.evaluation.registry import infos
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.scores import NO_SCORES
from phys_pipeline.media import Video, read_video, write_video
from training.experiments.effects import columns_of
from training.experiments.showcase import choose_prompts, write_showcase
from training.experiments.world import Asked


def scores(column, values):
    rows = [Row(f"{column}/{name}", name, column, 0, "sim2_jerk", value, "ok", backend="b") for name, value in values.items()]
    return columns_of(rows, list(infos().values()))[column]["sim2_jerk"]


def test_the_first_of_each_kind_then_the_largest_falls_and_rises():
    asked = [Asked(f"p{n}", f"prompt {n}", {"stratum": "simple", "motion": "translation"}) for n in range(12)]
    asked[5] = Asked("p5", "prompt 5", {"stratum": "simple", "motion": "rotation"})
    before = scores("plain", {one.id: 1.0 for one in asked})
    after = scores("mine", {f"p{n}": 0.5 + n / 10 for n in range(11)})  # p11 has none: it stands still
    shown = choose_prompts(asked, before, after, seed=0)
    assert [one.asked.id for one in shown] == ["p0", "p5", "p1", "p2", "p10", "p9", "p8"]
    assert [one.reason for one in shown[:3]] == [
        "first of its kind; jerk falls to 0.50",
        "first of its kind",
        "jerk falls to 0.60",
    ]
    assert shown[4].reason == "jerk rises to 1.50"
    first = choose_prompts(asked[:2], before, after, seed=0)
    assert first[0].reason.startswith("first of its kind; jerk falls to 0.50"), "all reasons, and the prompt once"


def test_columns_stand_beside_each_other_and_an_old_page_goes(tmp_path):
    files = {}
    for place, key in enumerate(("base", "mine")):
        frames = np.full((4, 16, 16, 3), 60 + 150 * place, dtype=np.uint8)
        files[f"{key}/p0#3"] = write_video(tmp_path / f"{key}.mp4", Video.from_frames(frames, fps=8), crf=0)
    shown = choose_prompts([Asked("p0", "a red square", {})], NO_SCORES, NO_SCORES, seed=3)
    page = tmp_path / "page_videos.md"
    (tmp_path / "page_videos").mkdir()
    (tmp_path / "page_videos" / "old.webp").write_bytes(b"")
    write_showcase(page, shown, {"base": "base model", "mine": "ours"}, files, seed=3)
    assert [file.name for file in (tmp_path / "page_videos").iterdir()] == ["p0.webp"]
    video = read_video(tmp_path / "page_videos" / "p0.webp")
    assert (video.height, video.width) == (16 * 2 + 18, 2 * 32 + 4)
    left, right = video.frames[0][-20:, 4:28], video.frames[0][-20:, -28:-4]
    assert abs(left.mean() - 60) < 6 and abs(right.mean() - 210) < 6
    assert "page_videos/p0.webp" in page.read_text() and "seed 3" in page.read_text()
