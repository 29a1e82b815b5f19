"""Colours with at least 4.5 : 1 contrast in light and dark, and the fonts of the visitor's system: nothing is fetched."""

from __future__ import annotations

from importlib.resources import files

import gradio as gr

_ACCENT, _ACCENT_HOVER = "#005a8d", "#00456c"  # white on it: 7.2 : 1 and 9.8 : 1
_STOP, _STOP_HOVER = "#a3260f", "#7f1c0a"

CSS = files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def theme() -> gr.themes.Base:
    """The theme of every page of ours."""
    text = {"body_text_color_subdued": "#4b5563", "body_text_color_subdued_dark": "#c3c9d3"}
    labels = {
        name: value
        for part in ("block_label_text_color", "block_title_text_color", "block_info_text_color", "table_text_color",
                     "accordion_text_color")
        for name, value in ((part, "*body_text_color"), (f"{part}_dark", "*body_text_color"))
    }  # fmt: skip
    buttons = {
        f"button_{kind}_{part}{dark}": value
        for kind, colours in (("primary", (_ACCENT, _ACCENT_HOVER)), ("cancel", (_STOP, _STOP_HOVER)))
        for dark in ("", "_dark")
        for part, value in (
            ("background_fill", colours[0]), ("background_fill_hover", colours[1]), ("text_color", "white"),
            ("text_color_hover", "white"),
        )
    }  # fmt: skip
    return gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.gray,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    ).set(
        **text,
        **labels,
        **buttons,
        slider_color=_ACCENT,
        slider_color_dark="#56b4e9",
        input_placeholder_color="#5b6472",
        input_placeholder_color_dark="#b9c0cb",
        link_text_color=_ACCENT,
        link_text_color_dark="#7cc4f0",
    )
