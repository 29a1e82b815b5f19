"""Stand-ins: a trainer that writes a log step by step and two validations, stops when it is interrupted, and knows dry runs;
and the commands that look at data and publish."""

from __future__ import annotations

from pathlib import Path

TRAINER = """
import json, pathlib, shutil, sys, time
settings = dict(a.split("=", 1) for a in sys.argv if "=" in a)
if "--dry-run" in sys.argv:
    print("clips: 6 usable"); sys.exit(0)
folder = pathlib.Path(settings["output_dir"]); folder.mkdir(parents=True, exist_ok=True)
def validate(name):
    place = folder / "validation" / name; place.mkdir(parents=True, exist_ok=True)
    shutil.copy("sample.mp4", place / "p0.mp4")
    (place / "results.json").write_text(json.dumps({"videos": [{"prompt": "a <b>red</b> square", "file": "p0.mp4"}]}))
validate("base")
first = 3 if settings.get("resume") else 1
try:
    with (folder / "log.jsonl").open("a") as log:
        for step in range(first, 5000):
            if step in (5, 300): validate(f"step-{step}")
            log.write(json.dumps({"step": step, "denoising": 1 / step, "motion": None}) + "\\n"); log.flush()
            print(f"\\rstep {step}", end="", flush=True); time.sleep(0.02)
except KeyboardInterrupt:
    print("\\ninterrupted"); sys.exit(130)
"""


COMMANDS = """
import pathlib, sys
if sys.argv[1:3] == ["data", "inspect"]:
    from PIL import Image
    folder = pathlib.Path(sys.argv[sys.argv.index("-o") + 1]); folder.mkdir(exist_ok=True)
    Image.new("RGB", (60, 40), "red").save(folder / "contact_sheet.png")
    print("6 clips of", sys.argv[3])
else:
    print("would send", pathlib.Path(sys.argv[2]).name, "to", sys.argv[sys.argv.index("--repo-id") + 1], *sys.argv[5:])
"""


def write_checkout(folder: Path) -> Path:
    """A checkout that holds nothing but the stand-ins, a video and one configuration."""
    from phys_pipeline.media import Video, write_video
    from phys_pipeline.media.synthetic import textured_clip

    write_video(folder / "sample.mp4", Video.from_tensor(textured_clip(9, 48, 64, seed=1, velocity=(1.0, 0.0)).video, 8.0))
    (folder / "phys_pipeline").mkdir()
    (folder / "phys_pipeline" / "__init__.py").touch()
    (folder / "phys_pipeline" / "__main__.py").write_text(COMMANDS)
    (folder / "training" / "configs").mkdir(parents=True)
    (folder / "training" / "configs" / "tiny.yaml").write_text("data: samples/clips # six\n")
    (folder / "training" / "train_lora.py").write_text(TRAINER)
    return folder
