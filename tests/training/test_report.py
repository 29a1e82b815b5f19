import json
import math
import sys

import pytest

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.report import mean_interval, write_report


def make_run(root, base=None, trained=None, **changes):
    places = {key: str(root / "secret") for key in ("model", "data", "video_root", "data_scores", "validation_data")}
    config = TrainConfig(output_dir=str(root), learning_rate=0.25, validation_prompts=["a | b"], **places, **changes)
    config.save(root / "config.yaml")
    records = [{"step": s, "denoising": 1.0 / s, "motion": None, "gradient_norm": 0.5} for s in (1, 2, 3)]
    (root / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for name, losses in (("base", base), ("step-3", trained)):
        if losses is not None:
            (root / "validation" / name).mkdir(parents=True)
            held_out = [{"sample": f"{c}#{i}", "clip": c, "sigma": s, "denoising": v, "motion": None} for c, i, s, v in losses]
            (root / "validation" / name / "results.json").write_text(json.dumps({"held_out": held_out, "videos": []}))
    return root


def test_the_interval_is_students():
    mean, half = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0 and half == pytest.approx(4.30 / math.sqrt(3))
    assert math.isnan(mean_interval([1.0])[1])
    values = [float(i % 2) for i in range(40)]
    assert mean_interval(values)[1] == pytest.approx(2.0227 * math.sqrt(10 / 39) / math.sqrt(40), rel=2e-3)


def test_windows_are_averaged_before_clips_and_differences_are_paired(tmp_path):
    base = [("a", 0, 0.5, 1.0), ("a", 1, 0.5, 3.0), ("b", 0, 0.5, 10.0)]
    trained = [("a", 0, 0.5, 0.0), ("a", 1, 0.5, 2.0), ("b", 0, 0.5, 7.0)]
    text = write_report(make_run(tmp_path, base, trained)).read_text()
    half = 12.71 * math.sqrt(2) / math.sqrt(2)
    assert f"| 0.500 | 6.00000 | 4.00000 | -2.00000 [{-2 - half:+.5f}, {-2 + half:+.5f}] | 2 |" in text
    assert "| learning_rate | 0.25 |" in text and "secret" not in text and "a \\| b" in text
    assert "![Curves over the steps](curves.png)" in text and (tmp_path / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("spectral", "is the spectral one, excess form, in pixel space"),
        ("anchored", "is the anchored one in pixel space"),
        ("ltd", ""),
    ],
)
def test_the_motion_loss_is_called_what_it_is(tmp_path, objective, words):
    row = [("a", 0, 0.5, 1.0)]
    text = write_report(make_run(tmp_path, row, row, objective=[objective])).read_text()
    assert words in text and ("The motion loss is" in text) is bool(words)


def test_without_matplotlib_the_numbers_are_a_table(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = write_report(make_run(tmp_path)).read_text()
    assert "| 2 | 0.50000 | - | - | 0.50000 |" in text and "Nothing was held out" in text


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no config\.yaml"):
        write_report(tmp_path)
