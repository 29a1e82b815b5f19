"""Run folders: ids that can't be guessed or bent into paths, and a limit to how many are kept."""

from __future__ import annotations

import os

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.web.engine import runs as module
from phys_pipeline.web.engine.runs import Runs


def test_written_runs_can_be_opened_again(tmp_path):
    runs = Runs(tmp_path / "runs")
    run = runs.new()
    with pytest.raises(DataError, match="gone"):
        runs.open(run.id)  # nothing was written yet
    run.write({"kind": "compare"})
    assert len(run.id) == 32 and runs.open(run.id).read() == {"kind": "compare", "id": run.id}
    assert (run.folder.stat().st_mode & 0o077) == 0


@pytest.mark.parametrize("identity", ["", "..", "../..", "a" * 32, "A" * 32, None, 7, ["x"], "%2e%2e", "\0" * 32])
def test_other_ids_open_nothing(tmp_path, identity):
    with pytest.raises(DataError, match="gone"):
        Runs(tmp_path).open(identity)


def test_old_runs_go(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "KEPT_RUNS", 3)
    runs = Runs(tmp_path)
    made = [runs.new() for _ in range(3)]
    for age, run in enumerate(made):
        run.write({})
        os.utime(run.folder, (1e9 + age, 1e9 + age)) if age == 0 else None
    runs.new()
    assert not made[0].folder.exists() and made[2].folder.exists()
    assert len(list(tmp_path.iterdir())) <= 3
