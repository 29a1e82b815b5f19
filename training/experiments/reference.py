"""Clean clips of what the test prompts ask for, measured as the columns are: what a model that made them would score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.rows import Row, read_rows
from phys_pipeline.media import write_video
from training.experiments.config import PROCEDURAL
from training.experiments.ledger import Cell
from training.experiments.runner import Runner
from training.experiments.world import CRF
from training.world.folder import SPREAD
from training.world.prompts import held_out_clips

CLEAN = "clean"  # the column


def clean_rows(runner: Runner) -> list[Row]:
    """One video per test prompt, seed 0; none for a world that isn't the procedural one. Measured once. Raises Busy."""
    if runner.experiment.world != PROCEDURAL:
        return []
    prompts = [[asked.id, asked.text] for asked in runner.prompts("test")]
    inputs = {"metrics": runner.metric_versions, "world": runner.world_digest, "prompts": prompts}
    cell = Cell("measure", "test-clean", inputs)
    runner.ledger.run(cell, lambda folder: _measure(runner, folder))
    return read_rows(runner.ledger.folder(cell))


def _measure(runner: Runner, folder: Path) -> dict[str, Any]:
    about = runner.experiment
    shape = about.train_config(about.base_loss, {}, seed=0, output="-", world="-")
    clips = held_out_clips(sum(about.prompts.values()), about.world_seed, frames=shape.frames, side=shape.height, spread=SPREAD)
    videos = {clip.caption: clip.video for clip in clips}
    samples = []
    for asked in runner.prompts("test"):
        path = write_video(folder / "videos" / f"{asked.id}.mp4", videos[asked.text], fps=shape.fps, crf=CRF)
        samples.append(VideoSample(asked.id, CLEAN, seed=0, path=path, prompt=asked.text, labels=dict(asked.labels)))
    return runner.measure(samples, folder)
