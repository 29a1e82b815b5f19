"""A study folder gives nothing away, and refuses pairs that would."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import av
import numpy as np
import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.study.build import build_study
from phys_pipeline.media import read_video


def test_pairs_checks_and_key(built, samples):
    folder, key = built
    study = json.loads((folder / "study.json").read_text())
    kinds = [trial["kind"] for trial in study["trials"]]
    assert kinds.count("pair") == 4 and kinds.count("check") == 2
    assert key["columns"] == ["baseline", "ours"]
    assert {name for trial in study["trials"] for name in trial["files"]} == set(key["files"])
    for trial in study["trials"]:
        sides = [key["files"][name] for name in trial["files"]]
        if trial["kind"] == "pair":
            assert {side["column"] for side in sides} == {"baseline", "ours"} and len({side["id"] for side in sides}) == 1
            assert trial["labels"]["stratum"] in ("simple", "complex")
        else:
            assert {side["check"] for side in sides} == {"original", "frozen"}
    pairs = [entry for entry in key["files"].values() if "check" not in entry]
    degree = {column: np.mean([e["dynamic_degree"] for e in pairs if e["column"] == column]) for column in key["columns"]}
    assert degree["ours"] > degree["baseline"] > 0


def test_videos_show_what_the_columns_showed(built, samples):
    folder, key = built
    known = {(sample.model, sample.id): sample for sample in samples}
    for name, entry in key["files"].items():
        shown, source = read_video(folder / "videos" / name), known[entry["column"], entry["id"]].decode()
        assert shown.fps == source.fps and shown.frames.shape == source.frames.shape
        if entry.get("check") == "frozen":
            assert all(np.abs(a.astype(int) - b).mean() < 1 for a, b in pairwise(shown.frames))
            source_frames = np.repeat(source.frames[:1], len(source), axis=0)
        else:
            source_frames = source.frames
        assert np.abs(shown.frames.astype(int) - source_frames).mean() < 4


def test_nothing_tells_the_side(built, samples):
    folder, key = built
    assert sorted(path.name for path in folder.iterdir()) == ["study.json", "videos"]
    text = (folder / "study.json").read_text()
    sources = {sample.digest for sample in samples}
    assert not any(word in text for word in ("baseline", "ours", *sources, "seed1", "sha256", "frozen"))
    study = json.loads(text)
    heads = set()
    for trial in study["trials"]:
        files = [folder / "videos" / name for name in trial["files"]]
        assert len({file.stat().st_size for file in files}) == 1
        for file in files:
            assert re.fullmatch(r"[0-9a-f]{16}\.mp4", file.name) and file.stat().st_mtime == 0
            with av.open(str(file)) as container:
                heads.add((tuple(sorted(container.metadata.items())), tuple(sorted(container.streams.video[0].metadata.items()))))
            content = file.read_bytes()
            assert b"baseline" not in content and b"ours" not in content
    assert len(heads) == 1  # the encoder's own words, the same in all
    hashes = {path.read_bytes() for path in (folder / "videos").iterdir()}
    assert len(hashes) == len(key["files"])


def test_two_builds_share_no_name_and_no_hash(samples, tmp_path, built):
    build_study(samples, tmp_path / "again", tmp_path / "key.json", seed=5)
    first = {path.name: path.read_bytes() for path in (built[0] / "videos").iterdir()}
    second = {path.name: path.read_bytes() for path in (tmp_path / "again" / "videos").iterdir()}
    assert not set(first) & set(second) and not set(first.values()) & set(second.values())


def clip(model: str, id: str = "p0", frames: int = 5, size: int = 32, fps: float = 8.0, seed: int | None = None) -> VideoSample:
    pixels = np.random.default_rng(frames).integers(0, 255, (frames, size, size, 3), np.uint8)
    return VideoSample(id, model, "a prompt", seed, frames=pixels, fps=fps)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([clip("a")], "two or more columns"),
        ([clip("a"), clip("b", "p1")], "no prompt and seed in common"),
        ([clip("a", seed=1), clip("b", seed=2)], "no prompt and seed in common"),
        ([clip("a"), clip("a"), clip("b")], "there twice"),
        ([clip("a"), clip("b", size=48)], "told apart"),
        ([clip("a"), clip("b", frames=6)], "told apart"),
        ([clip("a"), clip("b", fps=9.0)], "told apart"),
        ([clip("a"), replace(clip("b"), prompt="another")], "different prompts"),
        ([clip("a"), clip("b")], "attention checks"),
    ],
)
def test_what_can_not_be_a_study_is_refused_and_leaves_nothing(samples, words, tmp_path):
    with pytest.raises(DataError, match=words):
        build_study(samples, tmp_path / "study", tmp_path / "key.json")
    assert list(tmp_path.iterdir()) == []


def test_limits_and_targets(samples, tmp_path):
    with pytest.raises(DataError, match="at least 2"):
        build_study(samples, tmp_path / "study", tmp_path / "key.json", checks=1)
    with pytest.raises(DataError, match="4 pairs"):
        build_study(samples, tmp_path / "study", tmp_path / "key.json", per_person=5)
    with pytest.raises(DataError, match="elsewhere"):
        build_study(samples, tmp_path / "study", tmp_path / "study" / "key.json")
    (tmp_path / "key.json").write_text("")
    with pytest.raises(DataError, match="exists already"):
        build_study(samples, tmp_path / "study", tmp_path / "key.json")


def test_three_columns_are_paired_with_one_another(tmp_path, samples):
    third = [replace(sample, model="other") for sample in samples if sample.model == "ours"][:2]
    key = build_study([*samples[:2], *samples[4:6], *third], tmp_path / "study", tmp_path / "key.json")
    pairs = [entry for entry in key["files"].values() if "check" not in entry]
    assert len(pairs) == 2 * 3 * 2 and key["columns"] == ["baseline", "ours", "other"]
