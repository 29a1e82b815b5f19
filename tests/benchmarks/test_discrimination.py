"""Scores on file, what is counted from them, and both reports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ablation, discrimination, scores
from benchmarks.judging import Outcome, clip_bootstrap, judge, paired_difference, share_right
from benchmarks.pairs import CLEAN, CONTROL, Clip, held_out, synthetic_clip
from benchmarks.peers import PeerMeasures
from benchmarks.scores import Row, SpectralMeasures, code_digest, function_digest, parse_overrides, read_rows, score_clips
from phys_pipeline.media import CORRUPTIONS, Video, write_video
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Counting:
    """A measure that notes what it was asked; the score is the mean change between frames, or None."""

    name: str
    version: str = "1"
    asked: list[int] = field(default_factory=list)

    def versions(self) -> dict[str, str]:
        return {self.name: self.version}

    def scores(self, clips: Sequence[np.ndarray], wanted: Collection[str]) -> dict[str, list[scores.Score]]:
        self.asked.append(len(clips))
        return {self.name: [float(np.abs(np.diff(clip.astype(float), axis=0)).mean()) for clip in clips]}


def small(name: str, seed: int) -> Clip:
    video = textured_clip(16, 24, 32, velocity=(1.5, 0.5), seed=seed).video
    return Clip("real", name, 0, np.ascontiguousarray(video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8))


@pytest.fixture(scope="module")
def clips() -> list[Clip]:
    return [small("a.mp4", 1), small("b.mp4", 2)]


def row(clean: scores.Score, copies: dict[str, scores.Score], clip: str = "a") -> Row:
    return Row("real", clip, 0, "", "", "m", "", clean, None, copies, [])


def test_ties_and_missing_scores_are_wrong():
    outcomes = judge(
        [row(1.0, {"jitter 0.5": 1.5, "walk 1": 1.0, "cut 1": 0.5, "flicker 0.25": None}), row(None, {"cut 1": 2.0})]
    )
    assert [outcome.right for outcome in outcomes] == [True, False, False, False, False]
    assert [outcome.computed for outcome in outcomes] == [True, True, True, False, False]
    assert (outcomes[0].kind, outcomes[0].strength) == ("jitter", 0.5)


def test_clip_bootstrap_counts_clips_and_not_pairs():
    split = [("a", 1.0)] * 50 + [("b", 0.0)] * 50
    assert clip_bootstrap(split) == (0.0, 1.0)
    even = [(clip, value) for clip in "abcdefgh" for value in (0.0, 1.0)]
    assert clip_bootstrap(even) == (0.5, 0.5)
    low, high = clip_bootstrap([(str(clip), float(clip % 4 > 0)) for clip in range(400)])
    assert low == pytest.approx(0.75 - 1.96 * np.sqrt(0.75 * 0.25 / 400), abs=0.01) and 0.75 < high < 0.8


def test_difference_of_two_measures_is_paired():
    first = [Outcome("a", 0, "cut", 1.0, True, True), Outcome("b", 0, "cut", 1.0, True, True)]
    second = [first[0], first[1]._replace(right=False)]
    difference = paired_difference(first, second)
    assert difference is not None and difference.value == 0.5 and difference.clips == (0.0, 1.0)
    same = paired_difference(first, first)
    assert same is not None and same.value == 0 and same.clips == (0, 0)
    with pytest.raises(ValueError, match="same pairs"):
        paired_difference(first, second[::-1])
    assert share_right([]) is None and paired_difference([], []) is None


def test_a_second_run_computes_nothing_and_gives_the_same(tmp_path, clips):
    store, measure = tmp_path / "scores.jsonl", Counting("change")
    rows = score_clips(clips, [measure], store, 0)
    assert len(measure.asked) == len(rows) == 2 and {r.clip for r in rows} == {"a.mp4", "b.mp4"}
    for r, asked in zip(rows, measure.asked, strict=True):
        assert asked == len(r.copies) + 2 and len(r.copies) + len(r.unseen) == 27  # and the clip, and the control
        assert CLEAN not in r.copies and CONTROL not in r.copies and r.control is not None
    assert score_clips(clips, [measure], store, 0) == rows and len(measure.asked) == 2


def test_only_what_is_new_is_computed(tmp_path, clips):
    store, measure, added = tmp_path / "scores.jsonl", Counting("change"), Counting("added")
    rows = score_clips(clips[:1], [measure], store, 0)
    both = score_clips(clips, [measure, added], store, 0)
    assert len(measure.asked) == 2 and len(added.asked) == 2
    assert [(r.clip, r.measure) for r in both] == [(c, m) for c in ("a.mp4", "b.mp4") for m in ("change", "added")]
    assert both[0] == rows[0]
    newer = Counting("change", "2")
    assert {r.version for r in score_clips(clips, [newer], store, 0)} == {"2"} and len(newer.asked) == 2


def test_an_interrupted_line_is_computed_again(tmp_path, clips):
    store, measure = tmp_path / "scores.jsonl", Counting("change")
    rows = score_clips(clips, [measure], store, 0)
    text = store.read_text()
    store.write_text(text[:-40])
    assert read_rows(store) == rows[:1]
    assert score_clips(clips, [measure], store, 0) == rows and len(measure.asked) == 3
    assert store.read_text() == text


def test_processes_give_the_same_scores(tmp_path, clips):
    group = PeerMeasures()
    alone = score_clips(clips, [group], tmp_path / "alone.jsonl", 0)
    assert score_clips(clips, [group], tmp_path / "two.jsonl", 2) == alone


def test_loss_measures_are_the_loss(clips):
    config = SpectralConfig.calibrated()
    group = SpectralMeasures("loss", config)
    found = group.scores([clips[0].pixels] * 5 + [clips[1].pixels], list(group.versions()))
    assert list(found) == ["loss", "loss: translation", "loss: rotation", "loss: scaling"]
    assert all(len(values) == 6 and values[0] == pytest.approx(values[4], rel=1e-4) != values[5] for values in found.values())
    assert group.versions() != SpectralMeasures("loss", replace(config, whiten=0.5)).versions()
    assert list(SpectralMeasures("loss", config, components=False).scores([clips[0].pixels], ["loss"])) == ["loss"]


def test_digests_follow_code_and_not_comments(tmp_path):
    path = tmp_path / "code.py"

    def digests(text: str) -> tuple[str, str]:
        path.write_text(text)
        return code_digest(path), function_digest(path, "f")

    functions = (
        "def g(x):\n    return x + LIMIT\n",
        'def f(x):\n    """Text."""\n    return g(x)\n',
        "def h(x):\n    return x\n",
    )
    text = "\n\n".join(("LIMIT = 1\n", *functions))
    whole, part = digests(text)
    assert digests(text.replace("Text", "Other text").replace("x + LIMIT", "x + LIMIT  # why")) == (whole, part)
    changed, same = digests(text.replace("return x\n", "return -x\n"))
    assert changed != whole and same == part  # h is nothing to f
    assert digests(text.replace("LIMIT = 1", "LIMIT = 2"))[1] != part  # two steps away


def test_overrides_are_json_or_words():
    assert parse_overrides(["patches=2", "wrap=false", "polar=complex"]) == {"patches": 2, "wrap": False, "polar": "complex"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A clip of each part."""
    folder = tmp_path_factory.mktemp("clips")
    assert held_out("a6.mp4") and not held_out("a0.mp4")
    for name in ("a6.mp4", "a0.mp4"):
        write_video(folder / name, Video.from_frames(small(name, 3).pixels, 12.0))
    return folder


def test_report_and_its_second_run(tmp_path, folder, monkeypatch, capsys):
    places = ["--scores", str(tmp_path / "scores.jsonl"), "--report", str(tmp_path / "report.md")]
    arguments = ["--clips", str(folder), "--synthetic", "0", "--processes", "0", *places]
    discrimination.main(arguments)
    text = (tmp_path / "report.md").read_text()
    names = ["calibrated", "calibrated: rotation", "paper", "paper: scaling", "similarity jerk", "warping error, visible"]
    for heading in ("Real clips, tuning part", "Real clips, held-out part", "Control", "Goals", "Limits"):
        assert f"## {heading}" in text
    sections = text.split("\n## ")
    for name in names:
        assert sum(f"\n| {name} |" in section for section in sections) == 3  # both parts and the control
    assert all(kind in text for kind in CORRUPTIONS)
    assert "tuning part: 1 clips (a0.mp4)" in text and "held-out part: 1 clips (a6.mp4)" in text
    assert str(folder) not in text

    monkeypatch.setattr(scores, "_work", None)  # nothing may be computed
    discrimination.main(arguments)
    assert (tmp_path / "report.md").read_text() == text
    monkeypatch.undo()
    (tmp_path / "report.md").unlink()
    capsys.readouterr()
    discrimination.main([*arguments, "--override", "patches=1", "keep=0.2"])
    assert "no report written" in capsys.readouterr().out and not (tmp_path / "report.md").exists()


def test_ablation_changes_one_decision_at_a_time():
    start = SpectralConfig.calibrated()
    changes = ablation.variants(start)
    for _, name, value, config in changes:
        changed = {f.name for f in fields(start) if getattr(start, f.name) != getattr(config, f.name)}
        assert changed == ({"window", "stride"} if name == "window" else {name}) and getattr(config, name) == value
    assert {name for _, name, _, _ in changes} == {name for _, name, _ in ablation.DECISIONS}
    other = ablation.variants(replace(start, whiten=0.5))
    assert [value for _, name, value, _ in other if name == "whiten"] == [0.0, 1.0, 1.5]


def test_ablation_uses_the_tuning_part_only(folder):
    chosen, cuts = ablation.tuning_clips(folder, 3, 3000, 2)
    assert len(chosen) == 4 and cuts == 0 and not any(clip.held_out for clip in chosen)
    assert np.array_equal(chosen[0].pixels, synthetic_clip(int(chosen[0].name.split()[1])).pixels)


def test_ablation_report(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(
        ablation, "DECISIONS", (("patches", "patches", (1, 3)), ("weighting", "weighting", ("softmin", "coupled")))
    )
    places = ["--scores", str(tmp_path / "scores.jsonl"), "--report", str(tmp_path / "report.md")]
    ablation.main(["--clips", str(folder), "--synthetic", "0", "--processes", "0", *places])
    text = (tmp_path / "report.md").read_text()
    assert text.count("`patches` 3 -> 1") == text.count("`weighting` softmin -> coupled") == 1
    assert text.count("| preset |") == 1 and "held-out part: " not in text


@pytest.mark.parametrize("script", ["discrimination", "ablation"])
def test_scripts_start_from_their_path(script, tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "--override" in done.stdout, done.stderr
