"""Write the pack's example workflows with the real pages: each prompt of ``examples.py`` is opened, arranged and saved, and run
for its picture where no model has to be downloaded; the demo's page is the picture of docs/comfyui.md.

python tests/comfy/write_examples.py --cache .comfy        # after `make test-comfy`
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import build  # noqa: E402
from assets import write_models  # noqa: E402
from browser import Page  # noqa: E402
from examples import EXAMPLES  # noqa: E402
from graphs import Graph  # noqa: E402
from pages import open_graph, picture, ready, wait_for_video  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402
from server import Server  # noqa: E402

from phys_pipeline.adapters.embedded import embedded_adapters  # noqa: E402
from phys_pipeline.media import read_video, write_video  # noqa: E402

TARGET = HERE.parents[1] / "comfy_nodes" / "example_workflows"
PICTURE = HERE.parents[1] / "docs" / "images" / "comfyui.png"
CLIP = HERE.parents[1] / "samples" / "clips" / "mdn_rabbit.webm"
ADAPTER = "motion_adapter.safetensors"  # the package's own, under a name that a user might choose

NAMED = (
    ("diffusion_models", "hunyuan_video_t2v_720p_bf16.safetensors"),
    ("vae", "hunyuan_video_vae_bf16.safetensors"),
    ("text_encoders", "clip_l.safetensors"),
    ("text_encoders", "llava_llama3_fp8_scaled.safetensors"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path(".comfy"), metavar="FOLDER")
    environment = build.build(parser.parse_args().cache)
    with tempfile.TemporaryDirectory(prefix="phys-pipeline-") as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        clip = read_video(CLIP)
        write_video(base / "input" / "video.mp4", clip, clip.fps)
        models = write_models(Path(scratch) / "models")
        for kind, name in NAMED:  # only listed: a file that is missing is marked red
            (models / kind).mkdir(exist_ok=True)
            (models / kind / name).touch()
        shutil.copy(next(iter(embedded_adapters().values())).file, models / "loras" / ADAPTER)
        (base / "models").symlink_to(models)
        with Server(environment, build.ENGINES[0].version, base, frontend=True) as server:
            for name, graph in EXAMPLES.items():
                # a new browser for each: pages keep what nodes of an earlier graph have shown, and ask before they are left
                with Page(Path(scratch) / f"profile-{name}", 1600, 900) as page:
                    write(name, graph, server, page, Path(scratch) / "page.png")
                print(name, flush=True)


def write(name: str, graph: Graph, server: Server, page: Page, shot: Path) -> None:
    """One example's workflow and picture, and the documentation's picture."""
    ready(page, server)
    workflow = open_graph(page, graph)
    (TARGET / f"{name}.json").write_text(json.dumps(tidy(workflow), indent=1, ensure_ascii=False) + "\n", "utf-8")
    if name != "hunyuan_ab_native":
        run(page, server)
    (TARGET / f"{name}.jpg").write_bytes(jpeg(picture(page, shot)))
    if name == "embedded_demo":
        png(shot)


def run(page: Page, server: Server) -> None:
    """Queue what the page shows, an adapter chosen where none is, and wait until all is shown and said about the job."""
    page.evaluate(
        "window.app.graph._nodes.filter(node => node.type === 'PhysMotion_PipelineLoRA')"
        f".forEach(node => {{ node.widgets.find(w => w.name === 'lora_name').value = '{ADAPTER}'; }})"
    )
    page.evaluate("window.app.queuePrompt(0)")
    wait_for_video(page, "SaveVideo", 1800)
    while any(server.get("/queue").values()):
        time.sleep(0.5)
    page.evaluate("new Promise(done => setTimeout(done, 8000))")


def write_example_input(folder: Path) -> None:
    """The video that the first example loads."""
    import importlib.util

    spec: Any = importlib.util.spec_from_file_location("pack_frames", HERE / "pack" / "frames.py")
    frames = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(frames)
    images = frames.moving(frames=24, height=64, width=96, channels=3, kind="", speed=2.0)
    write_video(folder / "video.mp4", images.permute(3, 0, 1, 2), 12.0)


def tidy(workflow: dict[str, Any]) -> dict[str, Any]:
    """Without what only concerns the machine that wrote it."""
    workflow.pop("id", None)
    workflow.get("extra", {}).pop("frontendVersion", None)
    return workflow


def jpeg(shown: Image.Image) -> bytes:
    stream = io.BytesIO()
    shown.thumbnail((1200, 900), Image.Resampling.LANCZOS)
    shown.save(stream, "JPEG", quality=80)
    return stream.getvalue()


def png(shot: Path) -> None:
    with Image.open(shot) as page:
        # no palette: it has no colours left for the small video; without the last bit the file is a seventh smaller
        ImageOps.posterize(page.convert("RGB"), 7).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
