"""`make demo` as a newcomer runs it, and `make demo-train` with fewer steps: real launcher, embedded model and sample clips."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phys_pipeline.adapters.embedded import demo_pair
from phys_pipeline.media import probe, read_video

ROOT = Path(__file__).resolve().parent.parent


def run_demo(out: Path, target: str = "demo-train") -> subprocess.CompletedProcess[str]:
    """The Makefile's recipe with this interpreter in place of the one of .venv."""
    return subprocess.run(
        ["make", target, f"PY={sys.executable}", "STAMP=", f"OUT={out}", f"TRAIN_OUT={out}",
         "DEMO_SETTINGS=max_train_steps=2 samples_per_clip=1"],
        cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip


def test_demo_shows_the_pair_that_the_rule_chose(tmp_path):
    out = tmp_path / "demo"
    result = run_demo(out, "demo")
    assert result.returncode == 0, result.stderr[-3000:]
    scores = json.loads((out / "scores.json").read_text())
    assert (scores["prompt"], scores["seed"]) == demo_pair()
    assert set(scores["videos"]) == {"baseline", "physics"} and read_video(out / "comparison.mp4", size=(16, 64)).fps > 0
    assert scores["videos"]["baseline"] != scores["videos"]["physics"]


@pytest.mark.slow
def test_demo_train_writes_the_comparison_the_scores_and_the_adapter_and_a_second_run_reuses_them(tmp_path):
    out = tmp_path / "demo"
    first = run_demo(out)
    assert first.returncode == 0, first.stderr[-3000:]
    table = first.stdout
    for word in ("baseline", "physics", "translation", "rotation", "scaling", "composite", "dynamic degree"):
        assert word in table
    for name in ("comparison.mp4", "scores.json", "adapter"):
        assert (out / name).exists() and str(out / name) in table
    scores = json.loads((out / "scores.json").read_text())
    assert set(scores["videos"]) == {"baseline", "physics"} and scores["prompt"] == "a red square moves right"
    info = probe(out / "comparison.mp4")
    assert (
        info.codec == "h264" and len(read_video(out / "comparison.mp4", size=(16, 64))) == scores["videos"]["physics"]["frames"]
    )
    weights = out / "adapter" / "pytorch_lora_weights.safetensors"
    made = (weights.stat().st_mtime_ns, weights.read_bytes())

    second = run_demo(out)
    assert second.returncode == 0, second.stderr[-3000:]
    assert "already trained" in second.stderr
    assert (weights.stat().st_mtime_ns, weights.read_bytes()) == made
    assert second.stdout.splitlines()[-6:] == first.stdout.splitlines()[-6:]  # the same table and paths
    assert not [path for path in out.rglob("*") if ".partial" in path.name]
