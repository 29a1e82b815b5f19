"""The tab that shows a baseline and a physics video from the same noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from phys_pipeline.adapters.embedded import embedded_adapters
from phys_pipeline.errors import DataError
from phys_pipeline.web.component import seed_grid, sync_compare
from phys_pipeline.web.context import Context, status_html
from phys_pipeline.web.engine.compare import (
    LABELS,
    MOST_SEEDS,
    SIDES,
    VideoReady,
    choices_of,
    command_of,
    downloads,
    estimated_seconds,
    make_pairs,
    ranking,
)
from phys_pipeline.web.engine.examples import example_prompts
from phys_pipeline.web.engine.jobs import Cancelled, Done, Progress, spoken_seconds
from phys_pipeline.web.engine.measures import metric_infos
from phys_pipeline.web.engine.models import defaults_of
from phys_pipeline.web.engine.player import player_value
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.engine.settings import TINY
from phys_pipeline.web.events import GPU, PRIVATE, guarded, visitor
from phys_pipeline.web.tables import measured_table, report_table, warnings_html

NO_ADAPTER = "none"
_SIZES = ("num_frames", "height", "width", "num_inference_steps", "guidance_scale", "true_cfg_scale")
_READY = "Ready."


class CompareTab:
    """Components and events of the tab; :meth:`restore` is for the page's load event."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._controls()
        self.status = gr.HTML(status_html(_READY, running=False), elem_id="compare-status")
        self.player = sync_compare(elem_id="compare-player")
        self.grid = seed_grid({"cards": []}, elem_id="compare-grid")
        self.table = gr.HTML(elem_id="compare-table")
        with gr.Accordion("Download and repeat", open=False):
            self.files = gr.File(label="Videos, the pair with its scores burned in, scores as JSON", file_count="multiple",
                                 interactive=False, elem_id="compare-files")  # fmt: skip
            self.command = gr.Textbox(label="The command line that makes this pair again", interactive=False, lines=2,
                                      buttons=["copy"], elem_id="compare-command")  # fmt: skip
        self.memory = gr.BrowserState(None, storage_key="phys-pipeline-compare")
        self._events()

    def _controls(self) -> None:
        models, adapters = self.context.models, list(embedded_adapters())
        self.adapters = [*adapters, NO_ADAPTER]
        defaults = defaults_of(TINY)
        examples = _example_choices(TINY)
        local = self.context.settings.local
        with gr.Row():
            self.prompt = gr.Textbox(label="Prompt", value=examples[0][1] if examples else "", scale=3, max_length=1000,
                                     elem_id="compare-prompt")  # fmt: skip
            self.example = gr.Dropdown(examples, value=None, label="Examples by motion", scale=2, elem_id="compare-example")
        with gr.Row():
            self.seed = gr.Number(0, label="Seed", info="-1 draws one", precision=0, elem_id="compare-seed")
            self.count = gr.Slider(1, MOST_SEEDS, 1, step=1, label="Seeds, from this one on", elem_id="compare-count")
            self.weight = gr.Slider(0, 2, 1, step=0.05, label="Adapter strength", elem_id="compare-weight")
        with gr.Accordion("Model and adapter", open=False):
            with gr.Row():
                own = "a local folder, or a Hub id owner/name" if local else None
                self.model = gr.Dropdown(models.sources(), value=TINY, label="Model", info=own, allow_custom_value=local,
                                         elem_id="compare-model")  # fmt: skip
                self.adapter = gr.Dropdown(self.adapters, value=self.adapters[0], label="Adapter", allow_custom_value=local,
                                           info=own, elem_id="compare-adapter")  # fmt: skip
            self.adapter_file = gr.File(label="Or an adapter file (.safetensors)", file_types=[".safetensors"],
                                        elem_id="compare-adapter-file", height=110)  # fmt: skip
        with gr.Accordion("Size and steps", open=False), gr.Row():
            self.sizes = [
                gr.Number(defaults["num_frames"], label="Frames", precision=0),
                gr.Number(defaults["height"], label="Height, pixels", precision=0),
                gr.Number(defaults["width"], label="Width, pixels", precision=0),
                gr.Number(defaults["num_inference_steps"], label="Steps", precision=0, elem_id="compare-steps"),
                gr.Number(defaults["guidance_scale"], label="Guidance (embedded)"),
                gr.Number(defaults["true_cfg_scale"], label="Guidance (classifier-free, 1 is off)"),
            ]
        with gr.Row():
            self.start = gr.Button("Generate the pair", variant="primary", elem_id="compare-start", scale=3)
            self.stop = gr.Button("Cancel", variant="stop", interactive=False, elem_id="compare-stop", scale=1)

    def _events(self) -> None:
        shown = [self.player, self.grid, self.table, self.files, self.command]
        inputs = [self.prompt, self.model, self.adapter, self.adapter_file, self.weight, self.seed, self.count, *self.sizes]
        running = self.start.click(
            guarded(self.generate), inputs, [self.status, self.start, self.stop, *shown, self.memory],
            api_name="generate", show_progress="hidden", **GPU,
        )  # fmt: skip
        self.stop.click(
            self.cancel, None, [self.status, self.start, self.stop], cancels=[running], queue=False, **PRIVATE
        )  # fmt: skip
        self.grid.chosen(guarded(self.choose), [self.memory], [*shown, self.memory], show_progress="hidden", **PRIVATE)
        self.example.input(lambda prompt: prompt or gr.skip(), self.example, self.prompt, show_progress="hidden", **PRIVATE)
        self.model.change(
            guarded(self.model_changed), self.model, [self.example, self.adapter, *self.sizes], show_progress="hidden", **PRIVATE
        )  # fmt: skip

    def generate(
        self, prompt: str, model: str, adapter: str, adapter_file: str | None, weight: float, seed: float, count: float,
        frames: float, height: float, width: float, steps: float, guidance: float, true_guidance: float,
        request: gr.Request,
    ) -> Iterator[Any]:  # fmt: skip
        """Generate a baseline and a physics video for each seed from the same noise, and score them.

        Args:
            prompt: what the videos show.
            model: "tiny", or what this server offers.
            adapter: an embedded adapter's name, or "none".
            adapter_file: a .safetensors file in its place.
            weight: strength of the adapter, 0 is off.
            seed: of the noise, -1 draws one.
            count: number of seeds.
            frames, height, width, steps: of each video.
            guidance, true_guidance: embedded and classifier-free guidance.
        """
        given = {
            "prompt": prompt, "model": model, "adapter": adapter, "adapter_file": adapter_file, "weight": weight, "seed": seed,
            "count": count, "frames": frames, "height": height, "width": width, "steps": steps, "guidance": guidance,
            "true_cfg": true_guidance,
        }  # fmt: skip
        choices = choices_of(self.context.models, given)
        estimate = estimated_seconds(self.context.models, choices)
        first = "starting" if estimate is None else f"starting; about {spoken_seconds(estimate)}"
        yield self._state(first)
        try:
            with self.context.jobs.started(visitor(request)) as job:
                for event in job.follow(lambda job: make_pairs(self.context.models, self.context.runs, choices, job)):
                    if isinstance(event, Progress):
                        yield self._state(event)
                    elif isinstance(event, VideoReady):
                        yield self._state("scored a video", self._shown(event.run, event.seed), _memory(event.run, event.seed))
                    elif isinstance(event, Done):
                        best = ranking(event.value.read())[0]["seed"]
                        done = self._shown(event.value, best), _memory(event.value, best)
            yield self._state("Done.", *done, running=False)
        except Cancelled:
            yield self._state("Cancelled; what was ready is below.", running=False)
        except Exception:
            yield self._state("Stopped by an error.", running=False)
            raise

    def cancel(self, request: gr.Request) -> tuple[Any, Any, Any]:
        """Stop the visitor's job; the work ends with its current step."""
        self.context.jobs.cancel(visitor(request))
        return (
            status_html("Cancelled; what was ready is below.", running=False),
            gr.Button(interactive=True),
            gr.Button(interactive=False),
        )

    def choose(self, memory: Any, event: gr.EventData) -> tuple[Any, ...]:
        """Show the pair of another seed."""
        run = self.context.runs.open((memory or {}).get("run"))
        seed: Any = (event._data or {}).get("seed")
        if str(seed) not in run.read()["pairs"]:
            raise DataError("these results have no such seed")
        return (*self._shown(run, int(seed)), _memory(run, int(seed)))

    def restore(self, memory: Any) -> tuple[Any, ...]:
        """The results that this browser saw last, after a reload; for the page's load event."""
        try:
            run = self.context.runs.open((memory or {}).get("run"))
            seed = int(memory["seed"])
            return (status_html("Your last results.", running=False), *self._shown(run, seed))
        except (DataError, KeyError, TypeError, ValueError):
            return (gr.skip(),) * 6

    @property
    def restored(self) -> list[Any]:
        """Outputs of :meth:`restore`."""
        return [self.status, self.player, self.grid, self.table, self.files, self.command]

    def model_changed(self, chosen: str) -> list[Any]:
        """Examples, adapters and sizes of another model."""
        source = self.context.models.source(chosen)
        defaults = defaults_of(source)
        fitting = self.adapters if source == TINY else [NO_ADAPTER]
        return [
            gr.Dropdown(choices=_example_choices(source), value=None), gr.Dropdown(choices=fitting, value=fitting[0]),
            *(defaults[name] for name in _SIZES),
        ]  # fmt: skip

    def _state(self, now: Progress | str, shown: tuple[Any, ...] | None = None, memory: Any = None, running: bool = True) -> Any:
        """All outputs of :meth:`generate`: where the job is, and what has changed."""
        parts = shown if shown is not None else (gr.skip(),) * 5
        buttons = gr.Button(interactive=not running), gr.Button(interactive=running)
        return (status_html(now, running), *buttons, *parts, gr.skip() if memory is None else memory)

    def _shown(self, run: Run, seed: int) -> tuple[Any, ...]:
        """Player, grid, table, files and command line for one seed of a run."""
        content = run.read()
        entry = content["pairs"][str(seed)]
        return (
            _player(run, content, entry), {"cards": _cards(run, content, seed)}, _table(entry),
            [str(path) for path in downloads(run, seed)], command_of(content, seed),
        )  # fmt: skip


def _memory(run: Run, seed: int) -> dict[str, Any]:
    return {"run": run.id, "seed": seed}


def _player(run: Run, content: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    made = [side for side in SIDES if side in entry]
    places = dict(zip(("left", "right"), [*made, None], strict=False))
    return player_value(
        {place: None if side is None else run.path(entry[side]["file"]) for place, side in places.items()},
        {place: None if side is None else entry[side]["report"] for place, side in places.items()},
        labels=(LABELS[made[0]], LABELS[made[1]] if len(made) > 1 else ""), about=content["prompt"],
    )  # fmt: skip


def _cards(run: Run, content: Mapping[str, Any], chosen: int) -> list[dict[str, Any]]:
    """One card for each seed, the steadiest first; none for a single seed."""
    ranked = ranking(content)
    if len(ranked) < 2:
        return []
    cards = []
    for entry in ranked:
        scores = ", ".join(f"{side} {entry[side]['report']['loss']['composite']:.2f}" for side in SIDES if side in entry)
        still = "" if entry["moves"] else ", hardly moves"
        files = [
            {"path": str(run.path(entry[side]["file"])), "meta": {"_type": "gradio.FileData"}} for side in SIDES if side in entry
        ]
        text = f"Seed {entry['seed']}: motion loss {scores}{still}"
        cards.append({"seed": entry["seed"], "text": text, "files": files, "chosen": entry["seed"] == chosen})
    return cards


def _table(entry: Mapping[str, Any]) -> str:
    reports = {LABELS[side]: entry[side]["report"] for side in SIDES if side in entry}
    html = report_table(reports)
    if "measured" in entry:
        html += measured_table(entry["measured"], metric_infos(), list(reports))
    if any(report["is_static"] for report in reports.values()):
        html = warnings_html(["A video in which nothing moves has a loss of 0; that is no good grade."]) + html
    return html


def _example_choices(source: str) -> list[tuple[str, str]]:
    return [(f"{kind}: {prompt}", prompt) for kind, prompts in example_prompts(source).items() for prompt in prompts]
