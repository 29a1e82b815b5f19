"""The losses of a seeded 20-step run of the embedded model, kept in golden_tiny.json.

PYTHONPATH=.:tests python tests/training/test_golden.py     writes the file again, after a change that is meant to change them
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from training_run import records

from training.config import load_config
from training.loop import train

GOLDEN = Path(__file__).parent / "golden_tiny.json"
ROOT = Path(__file__).parents[2]
SETTINGS = [
    "max_train_steps=20", "frames=8", "train_batch_size=1", "frame_extraction=middle", "sigma_law=uniform", "shift=1",
    "checkpoint_every=0", "gradient_ratio_every=0", "trackers=[]", "seed=0", f"data={ROOT / 'samples' / 'clips'}",
]  # fmt: skip


def losses(folder):
    run = [f"output_dir={folder}/run", f"cache_dir={folder}/cache"]
    train(load_config(ROOT / "training" / "configs" / "tiny.yaml", SETTINGS + run), progress=False)
    return [{key: record[key] for key in ("step", "denoising", "motion")} for record in records(Path(folder) / "run")]


@pytest.mark.slow
def test_the_losses_are_the_golden_ones(tmp_path, monkeypatch):
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state(True)
    found, golden = losses(tmp_path), json.loads(GOLDEN.read_text())
    AcceleratorState._reset_state(True)
    assert len(found) == len(golden) == 20
    for now, before in zip(found, golden, strict=True):
        assert now["denoising"] == pytest.approx(before["denoising"], abs=1e-4), now["step"]
        assert (now["motion"] is None) == (before["motion"] is None)
        if now["motion"] is not None:
            assert now["motion"] == pytest.approx(before["motion"], abs=1e-4), now["step"]


if __name__ == "__main__":
    os.environ["ACCELERATE_USE_CPU"] = "true"
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text("[\n" + ",\n".join(json.dumps(row) for row in losses(folder)) + "\n]\n")
    sys.stdout.write(f"wrote {GOLDEN}\n")
