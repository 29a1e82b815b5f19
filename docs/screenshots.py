"""Pictures of the app's tabs in docs/images: ``python docs/screenshots.py [TAB ...]``; needs Chromium and Playwright."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from PIL import Image

from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.study.build import build_study
from phys_pipeline.media import Video, write_video
from phys_pipeline.media.synthetic import textured_clip

IMAGES = Path(__file__).parent / "images"
CLIPS = Path(__file__).parents[1] / "samples" / "clips"
MOST_BYTES = 150_000
WAIT = 600_000  # milliseconds


def save(page: Any, name: str, height: int) -> None:
    """A picture of the page's top with at most so many rows, in few colours so that the file is small."""
    page.set_viewport_size({"width": 1200, "height": height})
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(800)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    for colours in (256, 128, 64, 32):
        for width in (1000, 850, 700):
            small = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
            buffer = io.BytesIO()
            small.quantize(colours, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
            if len(buffer.getvalue()) < MOST_BYTES:
                IMAGES.mkdir(exist_ok=True)
                (IMAGES / f"app_{name}.png").write_bytes(buffer.getvalue())
                print(f"wrote {IMAGES / f'app_{name}.png'}: {len(buffer.getvalue())} bytes")
                return
    raise SystemExit(f"{name} does not fit into {MOST_BYTES} bytes")


def finished(page: Any, tab: str) -> None:
    page.locator(f"#{tab}-status").get_by_text(re.compile("^(Done|Finished)")).wait_for(timeout=WAIT)


def compare(page: Any) -> None:
    page.get_by_role("button", name="Generate the pair").click()
    finished(page, "compare")
    save(page, "compare", 1420)


def score(page: Any) -> None:
    page.get_by_role("tab", name="Score your video").click()
    page.get_by_label("Or a sample").click()
    page.get_by_role("option", name="mdn_rabbit.webm").click()
    page.get_by_role("button", name="Score it").click()
    finished(page, "score")
    save(page, "score", 1700)


def two(page: Any) -> None:
    page.get_by_role("tab", name="Compare two videos").click()
    for side, clip in (("a", "animatediff_pan_left.gif"), ("b", "animatediff_roll_ccw.gif")):
        page.locator(f"#two-{side} input[type=file]").set_input_files(CLIPS / clip)
        page.locator(f"#two-{side}").get_by_text(clip.partition(".")[0]).first.wait_for()
    page.get_by_role("button", name="Compare them").click()
    finished(page, "two")
    save(page, "two", 1250)


def study(page: Any) -> None:
    page.get_by_role("tab", name="Blind study").click()
    page.get_by_label("I am of age").check()
    page.locator("#study-begin").click()
    page.locator("#study-next:enabled").wait_for(timeout=WAIT)
    save(page, "study", 1000)


def training(page: Any) -> None:
    page.get_by_role("tab", name="Training").click()
    page.locator("#training-lines textarea").fill("max_train_steps=12")
    page.get_by_role("button", name="Start", exact=True).last.click()
    finished(page, "training")
    save(page, "training", 1300)  # above what the run says, which names folders


TABS = {"compare": compare, "score": score, "two": two, "study": study, "training": training}


def main(names: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    from phys_pipeline.web.app import build, launch_options
    from phys_pipeline.web.engine.settings import AppSettings

    with tempfile.TemporaryDirectory() as scratch:
        root, samples = Path(scratch), []
        for column, motion in (("a", {"rotation": 0.05}), ("b", {"velocity": (2.0, 0.0)})):
            for index in range(2):
                video = Video.from_tensor(textured_clip(16, 128, 192, seed=index, **motion).video, 12)
                path = write_video(root / column / f"{index}.mp4", video)
                samples.append(VideoSample(str(index), column, "a patterned cloth moves", path=path))
        build_study(samples, root / "study", root / "study.key.json")
        os.environ["GRADIO_TEMP_DIR"] = str(root / "gradio")
        settings = AppSettings(root / "app", study=root / "study", study_key=root / "study.key.json", host_key="key")
        settings.root.mkdir()
        demo = build(settings)
        _, url, _ = demo.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, **launch_options(settings))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"])
            for name in names or TABS:
                page = browser.new_page(viewport={"width": 1200, "height": 900})
                page.set_default_timeout(WAIT)
                page.goto(url)
                page.get_by_role("button", name="Generate the pair").wait_for()
                TABS[name](page)
                page.close()
            browser.close()
        demo.close(verbose=False)


if __name__ == "__main__":
    main(sys.argv[1:])
