"""A component of our own without a build step: NAME.html, NAME.css and NAME.js of this folder around a JSON value."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import gradio as gr

class Component(gr.HTML):
    """Scripts put texts in as texts, never as HTML; files in the value are given an address by Gradio."""

    def __init__(self, name: str, value: Any = None, **options: Any) -> None:
        parts = {
            ending: files(__package__).joinpath(f"{name}.{ending}").read_text(encoding="utf-8")
            for ending in ("html", "css", "js")
        }
        super().__init__(
            value=value, html_template=parts["html"], css_template=parts["css"], js_on_load=parts["js"],
            apply_default_css=False, **options,
        )  # fmt: skip

    def postprocess(self, value: Any) -> Any:
        return value

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}

    def example_payload(self) -> Any:
        return None

    def example_value(self) -> Any:
        return None
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component

class SyncCompare(Component):
    """The player: two videos in step, or one, with their scores drawn over them and over time.

    Its value is that of :func:`phys_pipeline.web.engine.player.player_value`; None shows that there is nothing yet. The event
    ``played`` comes each time the videos have reached their end.
    """

    def __init__(self, value: Any = None, **options: Any) -> None:
        super().__init__("sync_compare", value, **options)
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component

class SeedGrid(Component):
    """The pairs of several seeds as cards. Its value is ``{"cards": [{"seed", "text", "files", "chosen"}]}``; the event
    ``chosen`` carries a seed."""

    def __init__(self, value: Any = None, **options: Any) -> None:
        super().__init__("seed_grid", value, **options)
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component
