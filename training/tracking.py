"""What a run tells while it runs: a progress bar, `log.jsonl`, trackers such as TensorBoard, and the freezing alarm."""

from __future__ import annotations

import importlib
import json
import logging
import math
import secrets
import shutil
import statistics
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError

log = logging.getLogger(__name__)

RUN_KEY_FILE = "tracker_run.txt"  # in the run's folder: what a tracker elsewhere knows the run by
_ALARM_SAMPLES = 50  # steps; the ratio of one step depends much on its noise levels
_ALARM_RATIO = 0.8
_ADVICE = "lower the weights of the motion terms (motion_weight), or the learning rate"


class TensorBoard:
    """Event files in `tensorboard/` of the run's folder."""

    def __init__(self, root: Path, start_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not start_step:
            shutil.rmtree(root / "tensorboard", ignore_errors=True)
        self.writer = SummaryWriter(str(root / "tensorboard"), purge_step=start_step + 1 if start_step else None)

    def scalars(self, values: dict[str, float | int], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def animation(self, name: str, gif: Path, step: int) -> None:
        """Show an animated GIF, in the way of SummaryWriter.add_video but without moviepy."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        image = Summary.Image(encoded_image_string=gif.read_bytes())
        self.writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Weights & Biases, or trackio, which has the same calls. A resumed run goes on under the key in its folder."""

    def __init__(self, package: str, root: Path, start_step: int, config: dict[str, Any]) -> None:
        self.package: Any = importlib.import_module(package)
        file = root / RUN_KEY_FILE
        if not (start_step and file.is_file()):
            file.write_text(secrets.token_hex(4), encoding="utf-8")
        key = file.read_text(encoding="utf-8")
        known = {"id": key} if package == "wandb" else {}  # trackio knows a run by its name
        self.package.init(project="phys-pipeline", name=f"{root.name}-{key}", resume="allow", config=config, **known)

    def scalars(self, values: dict[str, float | int], step: int) -> None:
        self.package.log(dict(values), step=step)

    def animation(self, name: str, gif: Path, step: int) -> None:
        self.package.log({name: self.package.Video(str(gif), format="gif")}, step=step)

    def close(self) -> None:
        self.package.finish()


def check_trackers(names: list[str]) -> None:
    """Raise ConfigError when a tracker's package is missing."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            raise ConfigError(f"trackers: {name} is not installed: pip install {name}, or leave it out") from None


class RunLog:
    """Writes one record per step. On a resumed run, records past `start_step` are dropped and the rest is kept."""

    def __init__(
        self,
        output_dir: str | Path,
        *,
        start_step: int,
        max_steps: int,
        show_bar: bool = True,
        trackers: Sequence[str] = ("tensorboard",),
        config: dict[str, Any] | None = None,
    ) -> None:
        from tqdm import tqdm

        root = Path(output_dir)
        root.mkdir(parents=True, exist_ok=True)
        self.file = root / "log.jsonl"
        kept = [line for line in _lines(self.file) if start_step and _step(line) <= start_step]
        self.past: list[dict[str, Any]] = [json.loads(line) for line in kept]  # records of the run before it was resumed
        with atomic_file(self.file) as temporary:
            temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        self.trackers: list[TensorBoard | WandB] = []
        for name in trackers:
            if name == "tensorboard":
                self.trackers.append(TensorBoard(root, start_step))
            else:
                self.trackers.append(WandB(name, root, start_step, config or {}))
        self.bar = tqdm(total=max_steps, initial=start_step, disable=not show_bar, file=sys.stderr, unit="step")

    def write(self, step: int, record: dict[str, float | int | None]) -> None:
        """Log one step's numbers; None means that no sample carried the value."""
        clean = {k: (v if not isinstance(v, float) or math.isfinite(v) else None) for k, v in record.items()}
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **clean}) + "\n")
        self.track({f"train/{name}": value for name, value in clean.items()}, step)

    def track(self, values: Mapping[str, float | int | None], step: int) -> None:
        """Send numbers to the trackers alone."""
        present = {name: value for name, value in values.items() if value is not None}
        for tracker in self.trackers:
            tracker.scalars(present, step)

    def animation(self, name: str, gif: Path, step: int) -> None:
        """Send an animated GIF to the trackers."""
        for tracker in self.trackers:
            tracker.animation(name, gif, step)

    def advance(self, record: dict[str, Any]) -> None:
        """Move the bar by one step and show both losses."""
        motion = record.get("motion")
        shown = "-" if motion is None else f"{motion:.4f}"
        self.bar.set_postfix_str(f"denoising {record['denoising']:.4f}, motion {shown}", refresh=False)
        self.bar.update(1)

    def close(self) -> None:
        """Flush everything; safe to call twice."""
        self.bar.close()
        trackers, self.trackers = self.trackers, []
        for tracker in trackers:
            tracker.close()


def warn_if_freezing(step: int, kept: float) -> bool:
    """Warn when x0-hat of held-out clips has under 0.8 of the motion energy that the base model's has on the same noise."""
    if kept >= _ALARM_RATIO:
        return False
    log.warning(
        "step %d: predictions of held-out clips have %.2f of the motion energy that the base model's have: %s",
        step, kept, _ADVICE,
    )  # fmt: skip
    return True


class FreezingAlarm:
    """Warns once when the motion energy of x0-hat, relative to the clips', falls under 0.8 of what it was at the start.

    Medians of 50 steps: with one clip a step, one that hardly moves has a ratio of hundreds, and one in a hundred ruins a mean.
    Not under 0.8 of the clips': x0-hat is blurred by noise, and so moves less, from the first step on. It needs no held-out clip
    and is the coarser of the two alarms: its steps have different noise levels (see `warn_if_freezing`). `past` are the records
    of a resumed run: its start stays the first start.
    """

    def __init__(self, past: Sequence[Mapping[str, Any]] = ()) -> None:
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=_ALARM_SAMPLES)
        self._rung = False
        for record in past:
            self.update(record["step"], record.get("motion_energy_ratio"))

    def update(self, step: int, ratio: float | None) -> bool:
        """Take one step's energy ratio (None: no sample carried it); True on the step where the alarm goes off."""
        if ratio is None or self._rung:
            return False
        if len(self._first) < _ALARM_SAMPLES:
            self._first.append(ratio)
            return False
        self._last.append(ratio)
        if len(self._last) < _ALARM_SAMPLES:
            return False
        start, now = statistics.median(self._first), statistics.median(self._last)
        self._rung = now < _ALARM_RATIO * start
        if self._rung:
            log.warning(
                "step %d: predicted clips move less and less (motion energy %.2f of the clips', %.2f at the start): %s",
                step, now, start, _ADVICE,
            )  # fmt: skip
        return self._rung


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut short by a killed run
