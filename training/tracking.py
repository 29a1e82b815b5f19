"""What a run tells while it runs: a progress bar, `log.jsonl`, TensorBoard, and the freezing alarm."""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
from collections import deque
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_ALARM_SAMPLES = 50  # steps; the ratio of one step depends much on its noise levels
_ALARM_RATIO = 0.8


class RunLog:
    """Writes one record per step. On a resumed run, records past `start_step` are dropped and the rest is kept."""

    def __init__(self, output_dir: str | Path, *, start_step: int, max_steps: int, show_bar: bool = True) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from tqdm import tqdm

        root = Path(output_dir)
        root.mkdir(parents=True, exist_ok=True)
        self.file = root / "log.jsonl"
        kept = [line for line in _lines(self.file) if start_step and _step(line) <= start_step]
        self.file.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        if not start_step:
            shutil.rmtree(root / "tensorboard", ignore_errors=True)
        self.writer = SummaryWriter(str(root / "tensorboard"), purge_step=start_step + 1 if start_step else None)
        self.bar = tqdm(total=max_steps, initial=start_step, disable=not show_bar, file=sys.stderr, unit="step")

    def write(self, step: int, record: dict[str, float | int | None]) -> None:
        """Log one step's numbers; None means that no sample carried the value."""
        clean = {k: (v if not isinstance(v, float) or math.isfinite(v) else None) for k, v in record.items()}
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **clean}) + "\n")
        for name, value in clean.items():
            if value is not None:
                self.writer.add_scalar(f"train/{name}", value, step)

    def advance(self, record: dict[str, Any]) -> None:
        """Move the bar by one step and show both losses."""
        motion = record.get("motion")
        shown = "-" if motion is None else f"{motion:.4f}"
        self.bar.set_postfix_str(f"denoising {record['denoising']:.4f}, motion {shown}", refresh=False)
        self.bar.update(1)

    def close(self) -> None:
        """Flush everything; safe to call twice."""
        self.bar.close()
        self.writer.close()


class FreezingAlarm:
    """Warns once when the motion energy of x0-hat, relative to the clips', falls under 0.8 of what it was at the start.

    Not under 0.8 of the clips': x0-hat is blurred by noise, and so moves less, from the first step on.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=_ALARM_SAMPLES)
        self._rung = False

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
        start, now = sum(self._first) / len(self._first), sum(self._last) / len(self._last)
        self._rung = now < _ALARM_RATIO * start
        if self._rung:
            log.warning(
                "step %d: predicted clips move less and less (motion energy %.2f of the clips', %.2f at the start): "
                "lower motion_weight",
                step, now, start,
            )  # fmt: skip
        return self._rung


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut short by a killed run
