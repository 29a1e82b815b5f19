"""The app as a whole: its tabs, its launch options, and the command line of ``app.py``."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported

import gradio as gr

from phys_pipeline.errors import ConfigError, PhysPipelineError
from phys_pipeline.web.compare import CompareTab
from phys_pipeline.web.context import Context
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.settings import TINY, AppSettings, is_local
from phys_pipeline.web.events import PRIVATE, visitor
from phys_pipeline.web.score import ScoreTab
from phys_pipeline.web.study import StudyTab
from phys_pipeline.web.theme import CSS, theme
from phys_pipeline.web.training import TrainingTab
from phys_pipeline.web.two_videos import TwoVideosTab

_TITLE = "phys-pipeline: see the difference"
_QUEUE = 32  # events that may wait
_FILE_SECONDS = (3600, 2 * 86400)  # how often copies are looked at, and the age at which they are deleted: open pages need theirs


def build(settings: AppSettings) -> gr.Blocks:
    """The page of these settings."""
    context = Context.of(settings)
    with gr.Blocks(title=_TITLE, delete_cache=_FILE_SECONDS, analytics_enabled=False) as demo:
        gr.Markdown(
            "# See the difference\nA video model with and without a physics adapter, from the same noise, with their spectral "
            "motion scores. Lower motion loss means that shifts, turns and zooms explain more of the motion; a still clip has 0."
        )
        with gr.Tab("Compare", id="compare"):
            compare = CompareTab(context)
        with gr.Tab("Score your video", id="score"):
            score = ScoreTab(context)
        with gr.Tab("Compare two videos", id="two"):
            two = TwoVideosTab(context)
        with gr.Tab("Blind study", id="study"):
            study = StudyTab(context)
        with gr.Tab("Training", id="training"):
            training = TrainingTab(context)
        for tab in (compare, score, two):
            demo.load(tab.restore, [tab.memory], tab.restored, show_progress="hidden", **PRIVATE)
        demo.load(study.restore, None, study.restored, show_progress="hidden", **PRIVATE)
        if training.restored:
            demo.load(training.watch, None, training.restored, show_progress="hidden", **PRIVATE)

        def leave(request: gr.Request) -> None:
            context.jobs.cancel(visitor(request))

        demo.unload(leave)
        for tab in (compare, score, two):
            tab.memory.render()
    demo.queue(max_size=_QUEUE, default_concurrency_limit=4)
    demo.context = context
    return demo


def warm_up(context: Context) -> None:
    """Load the embedded model before anybody asks for it, so that the first pair comes soon."""
    with Job().device("the model, which is being loaded"):
        context.models.load(TINY)


def launch_options(settings: AppSettings) -> dict[str, Any]:
    """What every way of launching takes: theme, limits, no telemetry, no history."""
    return {
        "theme": theme(), "css": CSS, "ssr_mode": False, "run_history": False, "show_error": True, "footer_links": ["api"],
        "max_file_size": f"{settings.max_upload_mb}mb",
    }  # fmt: skip


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of ``app.py``."""
    parser = argparse.ArgumentParser(
        description="Compare videos with and without a physics adapter, score your own, run studies."
    )
    host = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")  # a Space sets it
    parser.add_argument("--host", default=host, help="address to listen at (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, default=7860, help="default: 7860; 0 takes a free one")
    parser.add_argument("--auth", metavar="USER:PASSWORD", help="ask visitors for it")
    parser.add_argument("--share", action="store_true", help="open a public link through Gradio's server (default: off)")
    parser.add_argument(
        "--model", action="append", default=[], metavar="SOURCE", help="offer this folder or Hub id too; repeatable"
    )
    parser.add_argument(
        "--local-files", action="store_true", help="let visitors name folders of this machine, train and host studies, although "
        "others can reach the app"
    )  # fmt: skip
    parser.add_argument("--study", metavar="STUDY", help="folder made by `phys-pipeline study build`, for the study tab")
    parser.add_argument("--study-key", metavar="FILE", help="its key (default: STUDY.key.json)")
    parser.add_argument("--max-upload-mb", type=int, default=200, metavar="N", help="largest upload (default: 200)")
    parser.add_argument("--max-seconds", type=float, default=60.0, metavar="S", help="longest video that is read (default: 60)")
    parser.add_argument("--mcp", action="store_true", help='serve the API as MCP tools too; needs pip install "gradio[mcp]"')
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> AppSettings:
    """Checked settings; makes the app's temporary folder. Raises ConfigError."""
    if options.auth is not None and not all(options.auth.partition(":")[::2]):
        raise ConfigError("--auth needs USER:PASSWORD")
    study = Path(options.study) if options.study else None
    key = Path(options.study_key) if options.study_key else study and study.with_name(f"{study.name}.key.json")
    root = Path(tempfile.mkdtemp(prefix="phys-pipeline-app-"))
    os.environ.setdefault("GRADIO_TEMP_DIR", str(root / "gradio"))
    return AppSettings(
        root, options.local_files or is_local(options.host, options.share), tuple(options.model), options.max_upload_mb,
        options.max_seconds, study=study, study_key=key, host_key=secrets.token_urlsafe(9),
    )  # fmt: skip


def prepare(arguments: Sequence[str]) -> tuple[gr.Blocks, argparse.Namespace]:
    """The page of a command line, and its options; ends the program with one line and code 2 on an expected error."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "diffusers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    options = options_of(arguments)
    try:
        return build(settings_of(options)), options
    except PhysPipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def serve(demo: gr.Blocks, options: argparse.Namespace) -> None:
    """Serve the page until the program is interrupted."""
    context: Context = demo.context
    threading.Thread(target=warm_up, args=(context,), daemon=True).start()
    if context.settings.study is not None or context.settings.local:
        print(f"study host's key: {context.settings.host_key}", flush=True)
    auth = tuple(options.auth.split(":", 1)) if options.auth else None
    demo.launch(
        server_name=options.host, server_port=options.port or None, share=options.share, auth=auth, mcp_server=options.mcp,
        **launch_options(context.settings),
    )  # fmt: skip
    shutil.rmtree(context.settings.root, ignore_errors=True)
