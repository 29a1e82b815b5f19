"""A stand-in for the trainer: it writes a log step by step, stops when it is interrupted, and knows dry runs."""

from __future__ import annotations

from pathlib import Path

TRAINER = """
import json, pathlib, signal, sys, time
settings = dict(a.split("=", 1) for a in sys.argv if "=" in a)
if "--dry-run" in sys.argv:
    print("clips: 6 usable"); sys.exit(0)
folder = pathlib.Path(settings["output_dir"]); folder.mkdir(parents=True, exist_ok=True)
first = 3 if settings.get("resume") else 1
try:
    with (folder / "log.jsonl").open("a") as log:
        for step in range(first, 5000):
            log.write(json.dumps({"step": step, "denoising": 1 / step, "motion": None}) + "\\n"); log.flush()
            print(f"\\rstep {step}", end="", flush=True); time.sleep(0.02)
except KeyboardInterrupt:
    print("\\ninterrupted"); sys.exit(130)
"""


def write_checkout(folder: Path) -> Path:
    """A checkout that holds nothing but the stand-in and one configuration."""
    (folder / "training" / "configs").mkdir(parents=True)
    (folder / "training" / "configs" / "tiny.yaml").write_text("data: samples/clips # six\n")
    (folder / "training" / "train_lora.py").write_text(TRAINER)
    return folder
