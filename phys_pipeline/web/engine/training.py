"""A training run of the trainer in this checkout: started, watched, stopped and published as commands, never imported."""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.engine.jobs import Cancelled, Job
from phys_pipeline.web.engine.numbers import text
from phys_pipeline.web.engine.settings import AppSettings

CHECKOUT = Path(__file__).parents[3]
CONFIGS = CHECKOUT / "training" / "configs"
CURVES = ("denoising", "motion", "motion_energy_ratio", "gradient_norm")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)?=.*")
_PATIENCE = 30.0  # seconds that a run has to end itself
_TAIL = 8000  # characters
# An app that was started in the background ignores interrupts, and its children would inherit that.
_INTERRUPTIBLE = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


def configs() -> list[str]:
    """Names of the configurations in this checkout; none where only the package is installed."""
    return sorted(path.name for path in CONFIGS.glob("*.yaml")) if CONFIGS.is_dir() else []


def settings_of(lines: str) -> list[str]:
    """``key=value`` settings, one a line. Raises ConfigError for a line that is none."""
    found = [line.strip() for line in (lines or "").splitlines() if line.strip()]
    for line in found:
        if not _SETTING.fullmatch(line):
            raise ConfigError(f"{line[:60]!r} is no setting: write key=value, one a line")
    return found


class Training:
    """The one training run of an app. Only for an app that nobody else can reach, or whose owner allowed it."""

    def __init__(self, settings: AppSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping: Job | None = None
        self._dry_run: tuple[str, str] | None = None
        self.output: Path | None = None
        self.log = settings.root / "training.log"
        atexit.register(self.stop)

    def inspect(self, config: str, lines: str, job: Job) -> tuple[str, bytes | None]:
        """The data report as text, and the sheet of pictures (PNG) if clips were usable."""
        settings = settings_of(lines)
        source = next((line.partition("=")[2] for line in settings if line.startswith("data=")), None) or self._data(config)
        others = [line for line in settings if not line.startswith("data=")]
        with tempfile.TemporaryDirectory(prefix="inspection-", dir=self.settings.root) as folder:
            command = ["-m", "phys_pipeline", "data", "inspect", source, "--config", self._file(config), *others, "-o", folder]
            report = self._run(command, job)
            sheet = Path(folder) / "contact_sheet.png"
            return report, sheet.read_bytes() if sheet.is_file() else None

    def dry_run(self, config: str, lines: str, job: Job) -> str:
        """What a run would do: counts, memory, disk, noise levels."""
        return self._run(["training/train_lora.py", "--dry-run", "--config", self._file(config), *settings_of(lines)], job)

    def start(self, config: str, lines: str, resume: bool = False) -> None:
        """Start in a process of its own, which owns the device until it ends. Raises ConfigError while one runs."""
        self._check()
        settings = settings_of(lines)
        file = self._file(config)
        with self._lock:
            if self.is_running:
                raise ConfigError("a training run is going on: stop it first")
            self._stopping = job = Job()
        named = next((line.partition("=")[2] for line in settings if line.startswith("output_dir=")), None)
        if named is not None:
            output = Path(named)
        elif resume and self.output is not None:
            output = self.output
        else:
            output = Path("out") / "app" / f"{Path(config).stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        command = [sys.executable, "training/train_lora.py", "--config", file, *settings, f"output_dir={output}"]
        if resume:
            command.append("resume=true")
        self.output = CHECKOUT / output
        started = threading.Event()
        threading.Thread(target=self._own_device, args=(command, job, started), daemon=True).start()
        started.wait(timeout=5)

    def _own_device(self, command: Sequence[str], job: Job, started: threading.Event) -> None:
        try:
            with job.device("a training run"), self.log.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-c", _INTERRUPTIBLE, *command], cwd=CHECKOUT, stdout=log, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                with self._lock:
                    self._process = process
                started.set()
                process.wait()
        except Cancelled:
            pass
        finally:
            started.set()
            job.finished.set()

    @property
    def is_running(self) -> bool:
        """Whether a run goes on or waits for the device."""
        return self._stopping is not None and not self._stopping.finished.is_set()

    @property
    def told_to_stop(self) -> bool:
        """Whether the run was interrupted already."""
        return self._stopping is not None and self._stopping.is_cancelled

    def stop(self) -> str:
        """Interrupt the run as Ctrl-C does: it leaves no half-written file, and its last checkpoint stays."""
        job, process = self._stopping, self._process
        if job is None or job.finished.is_set():
            return "No training run is going on."
        job.cancel()
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
        if not job.finished.wait(_PATIENCE):
            return "The run was told to stop and has not ended yet; press Stop again to end it hard."
        return "Stopped. Resume goes on from the last checkpoint."

    def end(self) -> None:
        """End the run's processes at once; for one that does not stop."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def state(self) -> tuple[str, list[dict[str, Any]], str]:
        """One line about the run, its records (of ``log.jsonl``), and the end of what it said."""
        tail = last_lines(self.log)
        if self._stopping is None:
            return "No training run yet.", [], ""
        records = read_records(self.output / "log.jsonl") if self.output is not None else []
        if self.is_running:
            now = f"step {records[-1]['step']}" if records else "preparing" if self._process else "waiting for the device"
            return f"Running: {now}.", records, tail
        code = self._process.returncode if self._process is not None else None
        words = {0: "Finished", 130: "Stopped", None: "Stopped"}.get(code, f"Ended with an error (code {code})")
        return f"{words}. {self._place()}", records, tail

    def samples(self) -> tuple[Path, Path, str] | None:
        """Copies of a prompt's video of the base model and of the newest step, and what they show."""
        if self.output is None:
            return None
        steps = sorted(self.output.glob("validation/step-*"), key=lambda path: int(path.name.partition("-")[2]))
        base = self.output / "validation" / "base" / "results.json"
        if not steps or not base.is_file() or not (steps[-1] / "results.json").is_file():
            return None
        videos = json.loads((steps[-1] / "results.json").read_text(encoding="utf-8"))["videos"]
        if not videos:
            return None
        folder = self.settings.root / "samples" / self.output.name
        folder.mkdir(parents=True, exist_ok=True)
        copies = []
        for source, name in ((base.parent, "base"), (steps[-1], steps[-1].name)):
            copies.append(folder / f"{name}-{videos[0]['file']}")
            if not copies[-1].is_file() or copies[-1].stat().st_mtime_ns != (source / videos[0]["file"]).stat().st_mtime_ns:
                shutil.copy2(source / videos[0]["file"], copies[-1])
        return copies[0], copies[1], f"{steps[-1].name}: {videos[0]['prompt']}"

    def publish(self, repository: str, private: bool, dry: bool, job: Job) -> str:
        """``phys-pipeline publish`` of the run's folder. Raises ConfigError before a dry run of the same folder has passed."""
        if self.output is None or not self.output.is_dir():
            raise ConfigError("there is no finished run to publish")
        name = text(repository, "repository", 96)
        if not _REPO.fullmatch(name):
            raise ConfigError("the repository must be OWNER/NAME")
        about = (str(self.output), name)
        if not dry and self._dry_run != about:
            raise ConfigError("do the dry run for this repository first, and read what it says")
        command = ["-m", "phys_pipeline", "publish", str(self.output), "--repo-id", name]
        command.append("--private" if private else "--public")
        report = self._run([*command, *(["--dry-run"] if dry else [])], job)
        if dry:
            self._dry_run = about
        return report

    def _place(self) -> str:
        return f"Results in {self.output.relative_to(CHECKOUT) if self.output and self.output.is_relative_to(CHECKOUT) else ''}"

    def _check(self) -> None:
        if not self.settings.local:
            raise ConfigError("training is off on this server: start the app with --local-files to allow it")
        if not configs():
            raise ConfigError("training needs a checkout of the repository, not the installed package alone")

    def _file(self, config: str) -> str:
        self._check()
        if config not in configs():
            raise ConfigError("choose one of the configurations in the list")
        return f"training/configs/{config}"

    def _data(self, config: str) -> str:
        found = re.search(r"^data:\s*([^\s#]+)", (CHECKOUT / self._file(config)).read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            raise ConfigError("this configuration names no data: add the setting data=FOLDER")
        return found.group(1)

    def _run(self, arguments: Sequence[str], job: Job) -> str:
        """What a command prints. Raises ConfigError with its last line when it fails, Cancelled when the job is cancelled."""
        self._check()
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        while True:
            try:
                output, errors = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if job.is_cancelled:
                    process.terminate()
                    process.communicate()
                    raise Cancelled from None
        if process.returncode:
            lines = [line for line in (errors or output).splitlines() if line.strip()]
            raise ConfigError((lines[-1] if lines else "the command failed").removeprefix("error: "))
        return output or errors


def read_records(file: Path) -> list[dict[str, Any]]:
    """Whole lines of a run's ``log.jsonl``."""
    if not file.is_file():
        return []
    records = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # being written
    return records


def last_lines(file: Path) -> str:
    """The end of a log; of a progress bar its latest state."""
    if not file.is_file():
        return ""
    said = file.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2] for line in said.split("\n")]
    return "\n".join(line for line in lines if line.strip()).strip("\n")[-_TAIL:]
