"""Components of our own without a build step: NAME.html, NAME.css and NAME.js of this folder around a JSON value.

Functions, not classes: Gradio writes a stub file beside the source of every class that is made from a component.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import gradio as gr


def sync_compare(value: Any = None, **options: Any) -> gr.HTML:
    """The player: two videos in step, or one, with their scores drawn over them and over time.

    Its value is that of :func:`phys_pipeline.web.engine.player.player_value`; None shows that there is nothing yet. The event
    ``played`` comes each time the videos have reached their end, with what the page's ``.player`` element answers to
    ``watched()``: ``{"token", "plays", "replays", "seconds"}``.
    """
    return _component("sync_compare", value, options)


def seed_grid(value: Any = None, **options: Any) -> gr.HTML:
    """The pairs of several seeds as cards. Its value is ``{"cards": [{"seed", "text", "files", "chosen"}]}``; the event
    ``chosen`` carries a seed."""
    return _component("seed_grid", value, options)


def _component(name: str, value: Any, options: dict[str, Any]) -> gr.HTML:
    """Scripts put texts in as texts, never as HTML; files in the value are given an address by Gradio."""
    html, css, script = (files(__package__).joinpath(f"{name}.{ending}").read_text("utf-8") for ending in ("html", "css", "js"))
    return gr.HTML(value, html_template=html, css_template=css, js_on_load=script, apply_default_css=False, **options)
