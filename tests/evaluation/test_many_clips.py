"""A thousand short clips: memory stays bounded, a killed run goes on, one file that can't be decoded stops nobody."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phys_pipeline.evaluation.rows import read_rows
from phys_pipeline.media import Video, write_video

ROOT = Path(__file__).parents[2]
CLIPS = 1000
METRICS = "temporal_flicker,flow_score,sim2_jerk"
GROWTH = 64  # megabytes that a run may take more for a thousand clips than for its first hundred


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Twenty different clips of 8 frames, each fifty times under its own name, and one file that is no video."""
    folder = tmp_path_factory.mktemp("videos")
    rng = np.random.default_rng(0)
    for index in range(CLIPS):
        path = folder / f"{index:04d}.mp4"
        if index < 20:
            texture = np.kron(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
            write_video(path, Video.from_frames(np.stack([np.roll(texture, t, axis=1) for t in range(8)]), 8))
        else:
            shutil.copyfile(folder / f"{index % 20:04d}.mp4", path)
    (folder / "0500.mp4").write_bytes(b"not a video")
    return folder


def start(videos, out):
    command = [
        sys.executable,
        "-m",
        "phys_pipeline",
        "evaluate",
        f"m={videos}",
        "--metrics",
        METRICS,
        "--controls",
        "none",
        "-o",
        str(out),
    ]
    return subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def done(out):
    """Clips that have rows, counted by lines."""
    file = out / "rows.jsonl"
    return file.read_bytes().count(b"\n") // 3 if file.exists() else 0


def wait_for(process, out, count):
    """Memory of the process in megabytes once ``count`` clips are done."""
    deadline = time.time() + 400
    while done(out) < count:
        assert process.poll() is None, process.stdout.read()
        assert time.time() < deadline
        time.sleep(0.05)
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_clips(videos, tmp_path):
    process = start(videos, tmp_path)
    wait_for(process, tmp_path, 300)
    process.kill()
    process.communicate()
    kept = done(tmp_path)
    process = start(videos, tmp_path)
    early = wait_for(process, tmp_path, kept + 100)
    late = wait_for(process, tmp_path, CLIPS - 20)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert late - early < GROWTH, f"{early:.0f} MB grew to {late:.0f} MB"
    rows = read_rows(tmp_path)
    assert len(rows) == 3 * CLIPS and {row.sample for row in rows if row.status == "failed"} == {"m/0500"}
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["values"]["m"]["temporal_flicker"]["n"] == CLIPS - 1
    assert any("0500" in json.dumps(entry) for entry in report["skipped"])
    copies = {}
    for row in rows:  # equal files have equal values, before the kill and after it
        copies.setdefault((row.digest, row.metric), set()).add((row.value, row.status))
    assert all(len(values) == 1 for values in copies.values())
