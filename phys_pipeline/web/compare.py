"""The tab that shows a baseline and a physics video from the same noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from phys_pipeline.adapters.embedded import demo_pair, embedded_adapters
from phys_pipeline.errors import DataError
from phys_pipeline.families import family_names
from phys_pipeline.web.component import seed_grid, sync_compare
from phys_pipeline.web.context import Context
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
from phys_pipeline.web.engine.jobs import Job, spoken_seconds
from phys_pipeline.web.engine.measures import metric_infos
from phys_pipeline.web.engine.models import RECOGNISED, defaults_of
from phys_pipeline.web.engine.player import player_value
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.engine.settings import TINY
from phys_pipeline.web.events import GPU, PRIVATE, guarded
from phys_pipeline.web.fairness import one_of_many
from phys_pipeline.web.job_tab import JobTab
from phys_pipeline.web.tables import measured_table, report_table, warnings_html

NO_ADAPTER = "none"
_SIZES = ("num_frames", "height", "width", "num_inference_steps", "guidance_scale", "true_cfg_scale")


class CompareTab(JobTab):
    """Components and events of the tab."""

    cancelled = "Cancelled; what was ready is below."

    def __init__(self, context: Context) -> None:
        self._controls(context)
        super().__init__(context, "compare", "Generate the pair")
        self.player = sync_compare(elem_id="compare-player")
        self.grid = seed_grid({"cards": []}, elem_id="compare-grid")
        self.table = gr.HTML(elem_id="compare-table")
        with gr.Accordion("Download and repeat", open=False):
            self.files = gr.File(label="Videos, the pair with its scores burned in, scores as JSON", file_count="multiple",
                                 interactive=False, elem_id="compare-files")  # fmt: skip
            self.command = gr.Textbox(label="The command line that makes this pair again", interactive=False, lines=2,
                                      buttons=["copy"], elem_id="compare-command")  # fmt: skip
        self.shown = [self.player, self.grid, self.table, self.files, self.command]
        self._events()

    def _controls(self, context: Context) -> None:
        models, adapters = context.models, list(embedded_adapters())
        self.adapters = [*adapters, NO_ADAPTER]
        defaults = defaults_of(TINY)
        examples = _example_choices(TINY)
        local = context.settings.local
        with gr.Row():
            self.prompt = gr.Textbox(label="Prompt", value=examples[0][1] if examples else "", scale=3, max_length=1000,
                                     min_width=280, elem_id="compare-prompt")  # fmt: skip
            self.example = gr.Dropdown(examples, value=None, label="Examples by motion", scale=2,
                                       min_width=280, elem_id="compare-example")  # fmt: skip
        with gr.Row():
            self.seed = gr.Number(demo_pair()[1], label="Seed", info="-1 draws one", precision=0, elem_id="compare-seed")
            self.count = gr.Slider(1, MOST_SEEDS, 1, step=1, label="Seeds, from this one on", elem_id="compare-count")
            self.weight = gr.Slider(0, 4, 1, step=0.05, label="Adapter strength", elem_id="compare-weight")
        with gr.Accordion("Model and adapter", open=False):
            with gr.Row():
                own = "a local folder, or a Hub id owner/name" if local else None
                self.model = gr.Dropdown(models.sources(), value=TINY, label="Model", info=own, allow_custom_value=local,
                                         elem_id="compare-model")  # fmt: skip
                self.family = gr.Dropdown([RECOGNISED, *family_names()], value=RECOGNISED, label="Model family",
                                          info="needed where the model does not say it itself",
                                          elem_id="compare-family")  # fmt: skip
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

    def _events(self) -> None:
        inputs = [
            self.prompt, self.model, self.adapter, self.adapter_file, self.weight, self.seed, self.count, *self.sizes, self.family
        ]  # fmt: skip
        self.start.click(
            guarded(self.generate),
            inputs,
            self.outputs,
            api_name="generate",
            show_progress="hidden",
            validator=one_of_many,
            **GPU,
        )
        self.make_cancelling()
        self.grid.chosen(guarded(self.choose), [self.memory], [*self.shown, self.memory], show_progress="hidden", **PRIVATE)
        self.example.input(lambda prompt: prompt or gr.skip(), self.example, self.prompt, show_progress="hidden", **PRIVATE)
        for chosen in (self.model, self.family):
            chosen.change(
                guarded(self.model_changed), [self.model, self.family], [self.example, self.adapter, *self.sizes],
                show_progress="hidden", **PRIVATE,
            )  # fmt: skip

    def generate(
        self, prompt: str, model: str, adapter: str, adapter_file: str | None, weight: float, seed: float, count: float,
        frames: float, height: float, width: float, steps: float, guidance: float, true_guidance: float,
        family: str, request: gr.Request,
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
            family: of a model that does not say it itself.
        """
        given = {
            "prompt": prompt, "model": model, "adapter": adapter, "adapter_file": adapter_file, "weight": weight, "seed": seed,
            "count": count, "frames": frames, "height": height, "width": width, "steps": steps, "guidance": guidance,
            "true_cfg": true_guidance, "family": family,
        }  # fmt: skip
        choices = choices_of(self.context.models, given)
        estimate = estimated_seconds(self.context.models, choices)
        known = "how long it takes is known after the first step" if estimate is None else f"about {spoken_seconds(estimate)}"

        def work(job: Job) -> Run:
            return make_pairs(self.context.models, self.context.runs, choices, job)

        yield from self.follow(f"starting; {known}", request, work)

    def remembered(self, made: Run | VideoReady) -> dict[str, Any]:
        """The run's id and a seed: that of a video, or of the best pair."""
        if isinstance(made, VideoReady):
            return {"run": made.run.id, "seed": made.seed}
        return {"run": made.id, "seed": ranking(made.read())[0]["seed"]}

    def choose(self, memory: Any, event: gr.EventData) -> tuple[Any, ...]:
        """Show the pair of another seed."""
        run = self.context.runs.open((memory or {}).get("run"))
        seed: Any = (event._data or {}).get("seed")
        if str(seed) not in run.read()["pairs"]:
            raise DataError("these results have no such seed")
        memory = {"run": run.id, "seed": int(seed)}
        return (*self.show(run, memory), memory)

    def model_changed(self, chosen: str, family: str) -> list[Any]:
        """Examples, adapters and sizes of another model."""
        source = self.context.models.source(chosen)
        defaults = defaults_of(source, self.context.models.family(family, source))
        fitting = self.adapters if source == TINY else [NO_ADAPTER]
        return [
            gr.Dropdown(choices=_example_choices(source), value=None), gr.Dropdown(choices=fitting, value=fitting[0]),
            *(defaults[name] for name in _SIZES),
        ]  # fmt: skip

    def show(self, run: Run, memory: Mapping[str, Any]) -> tuple[Any, ...]:
        """Player, grid, table, files and command line for one seed of a run."""
        seed = int(memory["seed"])
        content = run.read()
        entry = content["pairs"][str(seed)]
        return (
            _player(run, content, entry), {"cards": _cards(run, content, seed)}, _table(entry),
            [str(path) for path in downloads(run, seed)], command_of(content, seed),
        )  # fmt: skip


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
