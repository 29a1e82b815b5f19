"""The contact sheet: three clips in a row, wrong arguments said in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from training.world import sheet


def test_a_sheet_shows_the_clips(tmp_path: Path):
    assert sheet.main([str(tmp_path / "world.png"), "--clips", "4", "--clean"]) == 0
    with Image.open(tmp_path / "world.png") as picture:
        assert picture.size == (3 * (6 * 64 + 8), 2 * (64 + 14))


def test_a_wrong_spread_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sheet.main([str(tmp_path / "world.png"), "--spread", "2"]) == 2
    assert "a spread in [0, 1]" in capsys.readouterr().err and not (tmp_path / "world.png").exists()
