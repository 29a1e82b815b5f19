"""The world's evaluation: clean clips are judged right, blur and wobble are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')
pytest.importorskip("cv2", reason='the extra "eval" is not installed')

import phys_pipeline
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from training import evaluate_world
from training.evaluate_world import CLEAN, MODEL, area_drift, encoded_and_decoded, fine_power, report, stratum_of
from training.world.clips import world_clip
from training.world.prompts import held_out_clips


def test_fine_power_sees_blur_and_not_brightness():
    noise = torch.rand(3, 2, 32, 32)
    blurred = functional.avg_pool2d(noise.transpose(0, 1), 3, 1, 1).transpose(0, 1)
    assert fine_power(blurred) < 0.5 * fine_power(noise)
    assert fine_power(noise + 0.3) == pytest.approx(fine_power(noise), rel=1e-4)
    wave = torch.cos(2 * torch.pi * 8 / 32 * torch.arange(32)).expand(3, 2, 32, 32)  # on the border: counts
    assert fine_power(wave) > 100 * fine_power(torch.cos(2 * torch.pi * 2 / 32 * torch.arange(32)).expand(3, 2, 32, 32))


def test_area_drift_sees_a_body_that_breathes():
    clip = next(
        c for i in range(200) if (c := world_clip(4, i, flawed=False)).scene.motions == ("stays still",) and not c.scene.camera
        and c.scene.kind == "shape" and (area_drift(c.video, c) or 1) < 0.02
    )  # fmt: skip
    breathing = clip.video.clone()
    breathing[:, ::2] = functional.interpolate(clip.video[:, ::2, 8:56, 8:56].transpose(0, 1), (64, 64)).transpose(0, 1)
    steady, unsteady = area_drift(clip.video, clip), area_drift(breathing, clip)
    assert steady is not None and unsteady is not None and unsteady > 0.1 > 3 * steady


def test_clean_clips_are_judged_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.md"
    assert evaluate_world.main(["--prompts", "10", "--work", str(tmp_path / "work"), "--report", str(page)]) == 0
    text = page.read_text()
    line = next(line for line in text.splitlines() if line.startswith("| all |"))
    right, asked = line.split("|")[2].split("(")[0].split("/")
    assert int(right) == int(asked) >= 4
    assert "log of fine detail over the clean clip's | 0.000" in text and capsys.readouterr().out.startswith("# Held-out")


@pytest.mark.slow
def test_a_model_stands_beside_clean_clips_and_what_its_autoencoder_leaves_of_them(tmp_path: Path):
    page, sheet = tmp_path / "page.md", tmp_path / "sheet.png"
    model = Path(phys_pipeline.__file__).parent / "assets" / "tiny_hunyuan"
    given = [
        "--model",
        str(model),
        "--prompts",
        "3",
        "--work",
        str(tmp_path / "work"),
        "--report",
        str(page),
        "--sheet",
        str(sheet),
    ]
    assert evaluate_world.main(given) == 0
    text = page.read_text()
    assert "| Direction as asked | clean | autoencoder | model |" in text and "Model revision" in text
    line = next(line for line in text.splitlines() if line.startswith("| log of fine detail"))
    clean, decoded, _ = (float(cell.split()[0]) for cell in line.split("|")[2:5])
    assert clean == 0 > decoded  # an autoencoder blurs
    assert sheet.stat().st_size > 1000


def test_encoding_and_decoding_keeps_shape_and_range():
    video = torch.rand(3, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    again = encoded_and_decoded(FrameAutoencoder(latent_channels=4, widths=(4, 4, 4)), video)
    assert again.shape == video.shape and 0 <= again.min() <= again.max() <= 1


def test_a_report_compares_columns_clip_by_clip():
    clips = held_out_clips(4, 0)
    clean = [clip.video for clip in clips]
    text = report(clips, {CLEAN: clean, MODEL: [video * 0.5 for video in clean]}, [], "command", "about")
    assert "log of fine detail over the clean clip's | 0.000 (0.000-0.000), n 4 | -1.386 (-1.386--1.386), n 4" in text
    assert {stratum_of(clip) for clip in clips} <= {
        "events", "static", "mixture", "translation", "rotation", "scaling",
        *(f"camera: {kind}" for kind in ("mixture", "translation", "rotation", "scaling", "static")),
    }  # fmt: skip
