"""The whole experiment at the smallest size: two arms, one seed, four prompts, two steps, with the embedded model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from training.experiment import main, parse

ROOT = Path(__file__).resolve().parents[2]
FILE = """
clips: {train: 6, held_out: 2, clean: 8}
prompts: {validation: 2, test: 4}
seeds: [0]
batch: 4
sampler: {num_inference_steps: 1}
train:
  {frames: 16, height: 64, width: 64, rank: 2, max_train_steps: 2, train_batch_size: 2, precision: fp32, validation_quantiles: 1,
   learning_rate: 1.0e-2, lr_warmup_steps: 0, shift: 0.05}
arms:
  plain: {label: base loss, role: base_loss, settings: {objective: none}}
  mine: {settings: {objective: anchored, motion_weight: 30.0, motion_space: latent}, candidate: true}
"""


def test_options():
    found = parse(["--arms", "a,b", "seeds=[0]", "--stage", "sweep", "train.rank=2"])
    assert (found.arms, found.stage, found.overrides, found.workers) == ("a,b", "sweep", ["seeds=[0]", "train.rank=2"], 1)


def test_mistakes_exit_with_2_and_one_line(capsys):
    assert main(["--arms", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("error: there is no arm 'nobody'")


def untimed(text):
    """Without the arms' minutes."""
    return re.sub(r" \d+\.\d \|$", "", text, flags=re.MULTILINE)


@pytest.mark.slow
def test_end_to_end(tmp_path, capsys, fresh_accelerate_state):
    file, page = tmp_path / "e.yaml", tmp_path / "page.md"
    file.write_text(FILE)
    options = ["--config", str(file), f"output_dir={tmp_path}/out", f"report={page}"]
    assert main([*options, "--stage", "tables"]) == 2 and "no choice is recorded" in capsys.readouterr().err
    assert main([*options, "--stage", "test"]) == 2 and not list((tmp_path / "out" / "cells").glob("sample/test-*"))
    assert main(options) == 0
    text = page.read_text()
    for heading in ("What must hold", "Every arm against the base loss", "seed by seed", "Held-out denoising loss", "The sweep"):
        assert heading in text
    assert "| mine |" in text and "read for 1 recorded choice(s)" in text
    assert len([line for line in text.splitlines() if line.startswith("| mine")]) >= 2
    report = json.loads((tmp_path / "out" / "reports" / page.stem / "report.json").read_text())
    assert {column["key"]: column["role"] for column in report["columns"]} == {
        "baseline": "baseline", "plain": "base_loss", "mine": "ours",
    }  # fmt: skip
    assert report["prompts"]["n"] == 4 and (tmp_path / "out" / "reports" / page.stem / "report.html").is_file()
    assert report["per_video"]["mine"] != report["per_video"]["plain"], "the two losses gave two adapters"

    assert (tmp_path / "page.png").is_file()
    assert all(f"({name})" in text for name in ("page.png", "page_videos.md", "page_suite.md"))
    assert "SIM(2) jerk" in (tmp_path / "page_suite.md").read_text() and text.split("\n\n")[1].startswith("**In short.**")
    beside = (tmp_path / "page_videos.md").read_text()
    pictures = {file.name for file in (tmp_path / "page_videos").iterdir()}
    assert pictures and all(f"page_videos/{name}" in beside for name in pictures)

    records = sorted((tmp_path / "out" / "cells").rglob("record.json"))
    assert len(records) == 4 + 5 + 5  # adapters; columns of 2 validation and 3 test jobs; their measurements
    before = {record: record.stat().st_mtime_ns for record in records}
    assert main(options) == 0, "everything is done already"
    assert {record: record.stat().st_mtime_ns for record in records} == before and page.read_text() == text

    lost = next(record for record in records if "measure/test-mine" in str(record))
    sampled = next(record for record in records if "sample/test-mine" in str(record))
    lost.unlink()
    sampled.unlink()
    next(iter(sampled.parent.glob("*.mp4"))).unlink()  # as if it had been killed there
    assert main(options) == 0 and untimed(page.read_text()) == untimed(text), "the same numbers again"


def test_the_plan_has_a_price_for_everything(tmp_path, capsys, fresh_accelerate_state):
    file = tmp_path / "e.yaml"
    file.write_text(FILE)
    assert main(["--config", str(file), f"output_dir={tmp_path}/out", "--plan"]) == 0
    prices = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:4]}
    assert list(prices) == ["plain", "mine", "baseline"]
    assert all(float(price) >= 0 for line in prices.values() for price in line)
    assert not list((tmp_path / "out" / "cells").glob("*/*"))
