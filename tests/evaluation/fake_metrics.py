"""Metrics whose values a test can foresee. They write what they did to the folder of PHYS_TEST_CALLS, if it is set."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from phys_pipeline.errors import MediaError
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Weights, skipped


def note(text: str) -> int:
    """Append a line to the calls; returns how often it stood there before."""
    folder = os.environ.get("PHYS_TEST_CALLS")
    if not folder:
        return 0
    file = Path(folder) / "calls.txt"
    before = file.read_text().splitlines() if file.exists() else []
    with file.open("a") as stream:
        stream.write(f"{text}\n")
    return before.count(text)


def info(key: str, **more) -> MetricInfo:
    return MetricInfo(key, key, "1", "up", ("noweights",), "made up", **more)


class _Base:
    def __init__(self, settings):
        self.settings = settings

    def available(self):
        return Availability(True)

    def setup(self):
        note(f"setup {type(self).__name__}")

    def close(self):
        note(f"close {type(self).__name__}")


class Brightness(_Base):
    """Mean pixel in [0, 1]; fails where the first pixel is 13, ends its process where it is 14, once or always."""

    infos = (info("brightness", low=0, high=1), info("frame_count", min_frames=5))

    def compute(self, clip):
        note(f"brightness {clip.sample.name}")
        first = int(clip.frames[0, 0, 0, 0])
        if first in (13, 14) and clip.sample.id.startswith("bad"):
            if first == 13:
                raise MediaError("thirteen")
            if clip.sample.id == "bad always" or note(f"dies {clip.sample.name}") == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return {
            "brightness": MetricResult(float(clip.frames.mean()) / 255, backend="fake 1"),
            "frame_count": MetricResult(float(len(clip.frames)), per_frame=[1.0] * len(clip.frames)),
        }


class Steps(_Base):
    """Mean absolute change between frames, as a metric of pairs; a stand-in."""

    infos = (info("steps", standin_for="a better one"), info("outside", low=0, high=1))

    def start(self, clip):
        note(f"steps {clip.sample.name}")
        return self

    def add(self, pair):
        if pair.index == 0:
            self.values = []
        self.values.append(float(abs(pair.second.astype(float) - pair.first).mean()))

    def results(self):
        mean = sum(self.values) / len(self.values)
        return {"steps": MetricResult(mean, "standin", backend="fake", per_frame=self.values), "outside": MetricResult(7.0)}


class Heavy(_Base):
    """Has weights, so it gets a pass of its own."""

    infos = (info("heavy", weights=(Weights("some/model", "a" * 40, 5_000_000, "MIT"),)),)

    def compute(self, clip):
        return {"heavy": MetricResult(1.0) if clip.sample.labels.get("action") else skipped("it has no label action")}


class Missing(_Base):
    """Can run only once the file of PHYS_TEST_WEIGHTS is there."""

    infos = (info("missing", weights=(Weights("other/model", "b" * 40, 7_000_000_000, "non-commercial"),)),)

    def available(self):
        here = Path(os.environ.get("PHYS_TEST_WEIGHTS", "/nowhere")).exists()
        return Availability(here, "" if here else "phys-pipeline doctor missing --fetch gets its weights")

    def compute(self, clip):
        return {"missing": MetricResult(2.0)}


class Broken(_Base):
    """Its setup and its computation fail in ways that nobody foresaw."""

    infos = (info("broken"), info("broken_too"))

    def setup(self):
        raise RuntimeError("the file is\nno model")

    def compute(self, clip):
        raise AssertionError


class Surprising(_Base):
    infos = (info("surprising"), info("forgotten"))

    def compute(self, clip):
        if clip.sample.id == "odd":
            raise ZeroDivisionError("division by zero")
        return {"surprising": MetricResult(1.0)}


class Both(_Base):
    """An aggregate."""

    infos = (info("both"),)

    def combine(self, rows):
        parts = [rows.get("brightness"), rows.get("frame_count")]
        if any(part is None or part.value is None for part in parts):
            return {"both": skipped("needs brightness and frame_count")}
        return {"both": MetricResult(parts[0].value + parts[1].value)}


CLASSES = tuple(
    f"evaluation.fake_metrics:{cls.__name__}" for cls in (Brightness, Steps, Heavy, Missing, Broken, Surprising, Both)
)
