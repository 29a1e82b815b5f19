import importlib.util
import os
import signal
import sys

import pytest

from phys_pipeline.errors import ConfigError
from training.cluster import in_ray
from training.scores import score_entries
from training.sources import Entry


def read_text_or_die(path, preset):
    """Stands for scoring: the file says what happens to the process that reads it."""
    if path.read_text() == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"composite": float(len(path.read_text()))}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra `cluster` is not installed")
def test_no_clip_is_lost_when_its_process_dies(tmp_path):
    import ray

    entries = []
    for i in range(5):
        (tmp_path / f"{i}.mp4").write_text("dies" if i == 2 else "x" * i)
        entries.append(Entry(tmp_path / f"{i}.mp4", f"{i}.mp4", ""))
    try:
        rows = score_entries(entries, tmp_path / "s.jsonl", workers=2, score=read_text_or_die, engine=in_ray)
    finally:
        ray.shutdown()
    assert [row["composite"] for row in rows] == [0, 1, None, 3, 4]
    assert rows[2]["error"] == "its process failed (WorkerCrashedError)"


def test_without_ray_one_line_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="pip install ray"):
        score_entries([Entry(tmp_path / "a.mp4", "a.mp4", "")], tmp_path / "s.csv", engine=in_ray)
    assert not list(tmp_path.iterdir())
