"""The tab in which people say, blind, which of two videos they prefer; its host sees the results with a key."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.component import sync_compare
from phys_pipeline.web.context import Context
from phys_pipeline.web.engine.studies import Seat, Studies
from phys_pipeline.web.events import PRIVATE, guarded

_INTRO = """You will see pairs of short videos, side by side, with a text that says what they should show. For each pair please
answer two questions. There are no right answers, but a few pairs check that you are attentive, and their text says so.

**What is kept:** a random number in place of your name, which video you chose, how long you took and how often the videos were
played. No name, no address. The random number is stored in this browser, so that you can pause and go on. You can stop at any
time."""
_NO_STUDY = "There is no study here yet. Its host starts one below, or with `python app.py --study FOLDER`."
# A vote and what the player tells meanwhile keep their order, so that "Next pair" is closed after a vote.
_ONE_BY_ONE: dict[str, Any] = {"concurrency_id": "study", "concurrency_limit": 1, "show_progress": "hidden", **PRIVATE}
_WATCHED = "(seat, overall, motion) => [seat, overall, motion, document.querySelector('#study-player .player').watched()]"
_SIDES = [("Left", "left"), ("Right", "right")]


class StudyTab:
    """Components and events of the tab. Nothing of a pair is in the page before a participant begins."""

    def __init__(self, context: Context) -> None:
        self.studies = Studies(context.settings)
        self.seat = gr.State(None)
        self.memory = gr.BrowserState(None, storage_key="phys-pipeline-study")
        self.intro = gr.Markdown(self._intro())
        with gr.Column(visible=self.studies.title is not None) as self.welcome:
            self.agree = gr.Checkbox(label="I am of age, have read this and want to take part", elem_id="study-agree")
            self.begin = gr.Button("Start", variant="primary", elem_id="study-begin")
        with gr.Column(visible=False) as self.trial:
            self.count = gr.HTML(elem_id="study-count")
            self.player = sync_compare(elem_id="study-player")
            self.overall = gr.Radio(_SIDES, label="Which video is better overall?", elem_id="study-overall")
            self.motion = gr.Radio(
                _SIDES, label="In which video do things move more plausibly, as they would in reality?", elem_id="study-motion"
            )
            self.watched = gr.JSON(visible=False)  # filled in by the page when "Next pair" is pressed
            self.next = gr.Button("Next pair", variant="primary", interactive=False, elem_id="study-next")
        self.end = gr.Markdown("## Thank you\nYou have answered all pairs. You can close this page.", visible=False)
        self._host(context.settings.local)
        outputs = [self.seat, self.memory, self.welcome, self.trial, self.end, self.count, self.player, self.overall, self.motion,
                   self.next]  # fmt: skip
        self.begin.click(guarded(self.enter), [self.agree, self.memory], outputs, show_progress="hidden", **PRIVATE)
        self.next.click(
            guarded(self.vote), [self.seat, self.overall, self.motion, self.watched], outputs, js=_WATCHED, **_ONE_BY_ONE
        )
        self.player.played(guarded(self.played), [self.seat], [self.seat, self.next], **_ONE_BY_ONE)

    def _host(self, local: bool) -> None:
        with gr.Accordion("For the host of the study", open=False):
            self.key = gr.Textbox(
                label="Host's key", info="printed where the app was started", type="password", elem_id="study-key"
            )
            with gr.Row():
                self.look = gr.Button("Show the results so far", elem_id="study-look")
            self.results = gr.Markdown(elem_id="study-results")
            self.files = gr.File(
                label="Answers and analysis", file_count="multiple", interactive=False, visible=False, elem_id="study-files"
            )
            self.look.click(guarded(self.show), [self.key], [self.results, self.files], **PRIVATE)
            if not local:
                return
            gr.Markdown("Build a study from two folders of videos; files of the same name are a pair.")
            with gr.Row():
                first = gr.Textbox(label="First folder", elem_id="study-first")
                second = gr.Textbox(label="Second folder", elem_id="study-second")
            with gr.Row():
                prompts = gr.Textbox(label="Table of prompts", info=".csv, .jsonl or .json with id and prompt; may be empty")
                output = gr.Textbox(label="Folder to make", info="empty: a temporary one, gone with the app")
            build = gr.Button("Build and start the study", elem_id="study-build")
            build.click(
                guarded(self.build), [self.key, first, second, prompts, output], [self.intro, self.welcome, self.trial, self.end],
                **PRIVATE,
            )  # fmt: skip

    def _intro(self) -> str:
        title = self.studies.title
        return _NO_STUDY if title is None else f"## {escape(title)}\n{_INTRO}"

    def enter(self, agreed: bool, remembered: Any) -> tuple[Any, ...]:
        """Begin, or go on after a pause."""
        if not agreed:
            raise ConfigError("please tick the box first")
        return self._page(self.studies.enter(remembered))

    def vote(self, seat: Seat | None, overall: Any, motion: Any, watched: Any) -> tuple[Any, ...]:
        """Store the answers and show the next pair."""
        if seat is None:
            raise ConfigError("please press Start first")
        self.studies.vote(seat, overall, motion, watched)
        return self._page(seat)

    def played(self, seat: Seat | None, event: gr.EventData) -> tuple[Any, Any]:
        """Both videos have reached their end: the pair may be answered."""
        if seat is None:
            return gr.skip(), gr.skip()
        self.studies.played(seat, event._data)
        return seat, gr.Button(interactive=seat.plays > 0)

    def show(self, key: str) -> tuple[str, Any]:
        """The results, for the host alone."""
        if not self.studies.is_host(key):
            raise ConfigError("that is not the host's key")
        text, files = self.studies.results()
        return text, gr.File(value=[str(path) for path in files], visible=True)

    def build(self, key: str, first: str, second: str, prompts: str, output: str) -> tuple[Any, ...]:
        """Make a study and show it to whoever opens the tab from now on."""
        if not self.studies.is_host(key):
            raise ConfigError("that is not the host's key")
        self.studies.build(first, second, prompts, output)
        return self._intro(), gr.Column(visible=True), gr.Column(visible=False), gr.Markdown(visible=False)

    def restore(self) -> tuple[Any, Any]:
        """The study that is shown now; for the page's load event."""
        return self._intro(), gr.Column(visible=self.studies.title is not None)

    @property
    def restored(self) -> list[Any]:
        """Outputs of :meth:`restore`."""
        return [self.intro, self.welcome]

    def _page(self, seat: Seat) -> tuple[Any, ...]:
        done, total = self.studies.progress(seat)
        value = self.studies.value(seat)
        over = value is None
        text = "" if seat.trial is None else escape(seat.trial.text)
        count = (
            f'<p>{done} of {total} answered <progress max="{total}" value="{done}" aria-label="Answered pairs"></progress></p>'
            f'<p class="summary">{text}</p>'
        )
        return (
            seat, seat.participant, gr.Column(visible=False), gr.Column(visible=not over), gr.Markdown(visible=over), count,
            value,
            gr.Radio(value=None), gr.Radio(value=None), gr.Button(interactive=False),
        )  # fmt: skip
