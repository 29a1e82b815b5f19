"""The world's count: every clip is counted once in each table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from benchmarks import world


def test_each_table_counts_every_clip(tmp_path: Path):
    world.main(["--clips", "30", "--report", str(tmp_path / "world.md")])
    text = (tmp_path / "world.md").read_text()
    assert "30 clips of 16 frames of 64x64: 30 distinct" in text and " 0 clips show one" in text
    tables = text.split("| Clips | Share | 95 % |")[1:]
    assert [sum(map(int, re.findall(r"^\| [^|]+ \| (\d+) \|", table, re.MULTILINE))) for table in tables] == [30, 30, 30]
