"""A running app, a browser that forgives nothing, and a small study. A missing browser is a failure where CI is set."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server",
]  # fmt: skip
HOST_KEY = "the-host-knows"


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory):
    """Two columns of three clips; "swift" moves faster than "slow"."""
    from phys_pipeline.evaluation import VideoSample
    from phys_pipeline.evaluation.study.build import build_study
    from phys_pipeline.media import Video, write_video
    from phys_pipeline.media.synthetic import textured_clip

    folder, samples = tmp_path_factory.mktemp("columns"), []
    for column, speed in {"slow": 0.6, "swift": 2.0}.items():
        for index in range(3):
            clip = textured_clip(9, 48, 64, seed=index, velocity=(speed, 0.0)).video
            path = write_video(folder / column / f"p{index}.mp4", Video.from_tensor(clip, fps=12))
            samples.append(VideoSample(f"p{index}", column, f"Prompt <b>{index}</b>", path=path))
    target = tmp_path_factory.mktemp("study") / "study"
    build_study(samples, target, target.with_name("study.key.json"), seed=5)
    return SimpleNamespace(study=target, key=target.with_name("study.key.json"), columns=folder)


@pytest.fixture(scope="session")
def host_key():
    return HOST_KEY


@pytest.fixture(scope="session")
def app(tmp_path_factory, study_folder):
    """An app that others could reach, at a free port; uploads of at most 1 MB, videos of at most 4 s."""
    from phys_pipeline.web.app import build, launch_options
    from phys_pipeline.web.engine.settings import AppSettings

    root = tmp_path_factory.mktemp("app")
    os.environ["GRADIO_TEMP_DIR"] = str(root / "gradio")
    settings = AppSettings(
        root, local=False, max_upload_mb=1, max_seconds=4.0, study=study_folder.study, study_key=study_folder.key,
        host_key=HOST_KEY,
    )  # fmt: skip
    demo = build(settings)
    _, url, _ = demo.launch(
        server_name="127.0.0.1", server_port=None, prevent_thread_lock=True, quiet=True, **launch_options(settings)
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    yield SimpleNamespace(url=url.rstrip("/"), demo=demo, context=demo.context, root=root)
    demo.close(verbose=False)


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: install one, these tests may not be left out in CI")
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # milliseconds; machines that run tests are busy
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def new_page(browser):
    """Makes pages; afterwards no page may have asked another host, or have had an error."""
    contexts, wrong = [], []

    def make(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        allowed = (url.rpartition(":")[0], "data:", "blob:")
        page.on("request", lambda request: None if request.url.startswith(allowed) else wrong.append(f"asked {request.url}"))
        page.on("pageerror", lambda error: wrong.append(f"error {error}"))
        page.on("console", lambda message: wrong.append(f"console {message.text}") if message.type == "error" else None)
        page.goto(url)
        return page

    make.wrong = wrong
    yield make
    for context in contexts:
        context.close()
    assert not wrong, wrong


@pytest.fixture
def page(new_page, app):
    """The app in a new browser window."""
    opened = new_page(app.url)
    opened.get_by_role("button", name="Generate the pair").wait_for()
    return opened


def clip(path: Path, frames=12, height=48, width=64, fps=8.0, **motion) -> Path:
    from phys_pipeline.media import Video, write_video
    from phys_pipeline.media.synthetic import textured_clip

    motion = motion or {"velocity": (1.5, 0.0)}
    return write_video(path, Video.from_tensor(textured_clip(frames, height, width, seed=1, **motion).video, fps))


@pytest.fixture
def make_clip(tmp_path):
    """Makes a small textured clip; arguments as ``clip``."""
    return lambda name="clip.mp4", **options: clip(tmp_path / name, **options)
