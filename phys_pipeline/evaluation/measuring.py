"""Measure one clip after the other: decode, compute, check, and say in rows what came of it."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from phys_pipeline.errors import DataError, PhysPipelineError, first_line
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.flow import flow_estimator
from phys_pipeline.evaluation.metric import MetricInfo, MetricResult, Settings, failed, skipped
from phys_pipeline.evaluation.registry import metric_class
from phys_pipeline.evaluation.rows import STANDIN_LEFT_OUT, UNAVAILABLE, Row
from phys_pipeline.evaluation.sample import VideoSample

_RATE_TOLERANCE = 0.02  # a manifest's rate that differs more from the file's is a mistake


class ClipWorker:
    """Measures one clip after the other with the classes of one pass; one per process."""

    def __init__(self, classes: Sequence[str], keys: Sequence[str], settings: Settings, fingerprints: Mapping[str, str]) -> None:
        self.settings, self.keys, self.fingerprints = settings, set(keys), fingerprints
        self.metrics: dict[str, Any] = {name: metric_class(name)(settings) for name in classes}
        self.broken: dict[str, str] = {}
        self.estimator = flow_estimator(settings) if any(walks(metric) for metric in self.metrics.values()) else None
        for name, metric in self.metrics.items():
            if not walks(metric):
                try:
                    metric.setup()
                except Exception as error:  # what a model's loading may raise is not ours to list
                    self.broken[name] = f"can't be set up: {first_line(error)}"

    def __call__(self, sample: VideoSample) -> list[Row]:
        try:
            clip = DecodedClip(sample, sample.decode(), self.estimator)
            _check_rate(clip)
        except Exception as error:
            return [self._row(sample, name, info, failed(first_line(error))) for name, info in self._wanted()]
        results: dict[str, MetricResult] = {}
        for name, metric in self.metrics.items():
            if not walks(metric) and self._long_enough(metric, clip):
                results |= self._guarded(name, metric, partial(self._compute, name, metric, clip))
        results |= self._walked(clip)
        size = clip.video.height, clip.video.width, len(clip.frames), clip.fps
        rows = []
        for name, info in self._wanted():
            if len(clip.frames) < info.min_frames:
                result = skipped(f"{len(clip.frames)} frame(s), needs {info.min_frames}")
            else:
                result = self._checked(info, results[info.key])
            rows.append(self._row(sample, name, info, result, size))
        return rows

    def close(self) -> None:
        """Free what ``setup`` loaded."""
        for metric in self.metrics.values():
            if not walks(metric):
                metric.close()

    def _wanted(self) -> Iterator[tuple[str, MetricInfo]]:
        for name, metric in self.metrics.items():
            yield from ((name, info) for info in metric.infos if info.key in self.keys)

    def _compute(self, name: str, metric: Any, clip: DecodedClip) -> Mapping[str, MetricResult]:
        if name in self.broken:
            raise DataError(self.broken[name])
        return metric.compute(clip)

    def _walked(self, clip: DecodedClip) -> dict[str, MetricResult]:
        """Results of the metrics that look at pairs of frames."""
        results: dict[str, MetricResult] = {}
        walking: dict[str, Any] = {}
        spent: dict[str, float] = defaultdict(float)
        walkers = {n: m for n, m in self.metrics.items() if walks(m) and self._long_enough(m, clip)}
        for name, metric in walkers.items():
            try:
                walking[name] = metric.start(clip)
            except Exception as error:
                results |= _all(metric, failed(_described(error)))
        for pair in clip.pairs() if walking else ():
            for name, state in list(walking.items()):
                began = time.perf_counter()
                try:
                    state.add(pair)
                except Exception as error:
                    results |= _all(walkers[name], failed(_described(error)))
                    del walking[name]
                spent[name] += time.perf_counter() - began
        for name, state in walking.items():
            found = self._guarded(name, walkers[name], state.results)
            results |= {key: dataclasses.replace(result, seconds=spent[name]) for key, result in found.items()}
        return results

    def _guarded(self, name: str, metric: Any, compute: Callable[[], Mapping[str, MetricResult]]) -> dict[str, MetricResult]:
        began = time.perf_counter()
        try:
            found = dict(compute())
        except Exception as error:
            return _all(metric, failed(_described(error)))
        seconds = time.perf_counter() - began
        absent = {info.key: failed(f"{name} gave no result for it") for info in metric.infos if info.key not in found}
        return absent | {key: dataclasses.replace(result, seconds=seconds) for key, result in found.items()}

    def _long_enough(self, metric: Any, clip: DecodedClip) -> bool:
        return any(len(clip.frames) >= info.min_frames for info in metric.infos)

    def _checked(self, info: MetricInfo, result: MetricResult) -> MetricResult:
        if result.status == "standin" and not self.settings.standins:
            reason = f"{result.backend or 'this backend'} only stands in for {info.standin_for}, and stand-ins are left out"
            return MetricResult(None, "skipped", reason, details={STANDIN_LEFT_OUT: True})
        if result.value is not None and not info.contains(result.value):
            return failed(f"its value {result.value:g} lies outside [{info.low}, {info.high}]")
        return result

    def _row(
        self,
        sample: VideoSample,
        name: str,
        info: MetricInfo,
        result: MetricResult,
        size: tuple[int, int, int, float | None] | None = None,
    ) -> Row:
        return make_row(sample, info, result, self.settings, self.fingerprints[name], size)


def make_row(
    sample: VideoSample,
    info: MetricInfo,
    result: MetricResult,
    settings: Settings,
    fingerprint: str,
    size: tuple[int, int, int, float | None] | None = None,
    *,
    missing: bool = False,
) -> Row:
    height, width, frames, fps = size or (0, 0, 0, sample.fps)
    details = {**result.details, UNAVAILABLE: True} if missing else dict(result.details)
    return Row(
        sample.name, sample.id, sample.model, sample.seed, info.key, result.value, result.status, result.reason, result.backend,
        settings.protocol, info.version, digest_of(sample), fingerprint, settings.seed, sample.prompt, dict(sample.labels),
        width, height, frames, fps, None if result.per_frame is None else list(result.per_frame), details,
        round(result.seconds, 4), time.time(),
    )  # fmt: skip


def digest_of(sample: VideoSample) -> str:
    """The sample's digest; "unreadable" for a file that can't be read."""
    try:
        return sample.digest
    except DataError:
        return "unreadable"


def walks(metric: Any) -> bool:
    """Whether a metric looks at pairs of frames."""
    return hasattr(metric, "start")


def _all(metric: Any, result: MetricResult) -> dict[str, MetricResult]:
    return {info.key: result for info in metric.infos}


def _described(error: Exception) -> str:
    text = first_line(error)
    return text if isinstance(error, PhysPipelineError) else f"{type(error).__name__}: {text}"


def _check_rate(clip: DecodedClip) -> None:
    sample = clip.sample
    if sample.path is None or sample.fps is None:
        return
    if abs(sample.fps / clip.video.fps - 1) > _RATE_TOLERANCE and len(clip.frames) > 1:
        raise DataError(
            f"the sample says {sample.fps:g} frames per second, its file {clip.video.fps:g}: correct one, or leave fps out"
        )
