"""Two videos measured with every metric that needs no weights, and whether one of them merely moves less."""

from __future__ import annotations

import tempfile
from typing import Any

from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.guards import motion_guard
from phys_pipeline.evaluation.metric import MetricInfo, Settings
from phys_pipeline.evaluation.registry import infos, select
from phys_pipeline.evaluation.report.mismatch import mismatches
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.evaluation.scores import collect
from phys_pipeline.media import Video
from phys_pipeline.web.engine.jobs import Job

_COLUMNS = ("A", "B")


def metric_infos() -> dict[str, MetricInfo]:
    """The metrics of :func:`measure_two` by key."""
    return {key: infos()[key] for key in select(["noweights"])}


def measure_two(videos: tuple[Video, Video], labels: tuple[str, str], prompt: str, job: Job) -> dict[str, Any]:
    """``{"metrics": {key: {"values": [a, b], "reason"}}, "warnings": [...]}`` as JSON; the job may be cancelled between the two.

    A warning says that a video moves less than the other, so that its temporal metrics are no gain (``evaluation.guards``), or
    that the two can't be compared. ``labels`` name the videos in warnings.
    """
    samples = [
        VideoSample("pair", column, prompt, frames=video.frames, fps=video.fps)
        for column, video in zip(_COLUMNS, videos, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="phys-pipeline-measure-") as scratch:
        evaluator = Evaluator(tuple(metric_infos()), Settings(flow="dis", offline=True), scratch)
        rows = evaluator.run(samples, progress=lambda done, total: job.check())
    found = collect(rows, list(evaluator.infos.values()))
    by_place = {(row.metric, row.model): row for row in rows}
    metrics = {}
    for key in evaluator.keys:
        pair = [by_place.get((key, column)) for column in _COLUMNS]
        reason = next((row.reason for row in pair if row is not None and row.reason), "")
        metrics[key] = {"values": [None if row is None else row.value for row in pair], "reason": reason}
    warnings = [
        f"{labels[0]} and {labels[1]} differ in size, rate or length, on which most metrics depend: {line.partition(': ')[2]}."
        for line in mismatches(rows, list(_COLUMNS))
    ]
    for first, second, name in ((*_COLUMNS, labels[1]), (*_COLUMNS[::-1], labels[0])):
        guard = motion_guard(found.get(first, {}), found.get(second, {}), evaluator.infos)
        if guard["red"]:
            warnings.append(f"{name}: {guard['line'].replace('the baseline', 'the other video')}")
    return {"metrics": metrics, "warnings": warnings}
