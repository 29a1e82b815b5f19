"""Two videos of a visitor's own, side by side on one clock, with every metric that needs no weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phys_pipeline.media import Video, write_video
from phys_pipeline.scoring import check_measurable, score_video, scored_comparison
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.measures import measure_two
from phys_pipeline.web.engine.player import on_one_clock
from phys_pipeline.web.engine.runs import Run, Runs

KIND = "two"
FILES = ("a.mp4", "b.mp4")
Read = tuple[Video, tuple[int, int], list[str]]  # of engine.player.read_upload


def names_of(first: str, second: str) -> tuple[str, str]:
    """Labels for two files; told apart where they have one name."""
    return (first, second) if first != second else (f"A: {first}", f"B: {second}")


def compare_two(runs: Runs, first: Read, second: Read, job: Job) -> Run:
    """Score, measure and write both. Raises MediaError for a clip too short or too small, Cancelled."""
    names = names_of(first[0].source, second[0].source)
    notes = [f"{name}: {note}" for name, read in zip(names, (first, second), strict=True) for note in read[2]]
    videos, changed = on_one_clock((first[0], second[0]))
    reports: list[dict[str, Any]] = []
    for video, read, name in zip(videos, (first, second), names, strict=True):
        job.report(f"scoring {name}")
        check_measurable(name, len(video), *read[1])
        reports.append(score_video(video, original_size=read[1]).to_dict())
    job.report("measuring with every metric that needs no weights")
    measured = measure_two(videos, names, "", job)
    job.report("writing the videos")
    run = runs.new()
    for file, video in zip(FILES, videos, strict=True):
        write_video(run.path(file), video)
    write_video(run.path("comparison.mp4"), scored_comparison(videos, reports, names))
    scores = {"schema": "phys-pipeline/scores", "version": 1, "videos": dict(zip(names, reports, strict=True)), **measured}
    run.write_json("scores.json", scores)
    run.write(
        {"kind": KIND, "names": list(names), "reports": reports, "measured": measured, "notes": [*notes, *changed],
         "files": [first[0].source, second[0].source]}
    )  # fmt: skip
    return run


def downloads(run: Run) -> list[Path]:
    """Files that a visitor may keep."""
    return [run.path(name) for name in ("comparison.mp4", "scores.json")]
