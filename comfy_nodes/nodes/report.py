"""Two scores compared, on the node and as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import folder_paths
from comfy.cli_args import args
from comfy_api.latest import io
from PIL import Image

from phys_pipeline import __version__
from phys_pipeline.atomic import atomic_file
from phys_pipeline.media.card import score_plot

from .running import as_image, shown
from .schema import MOTION_SCORE, field, result, schema


class ScoreReport(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "ScoreReport",
            category="PhysMotion/score",
            search_aliases=["save scores", "compare scores"],
            inputs=[
                field(MOTION_SCORE, "scores_a"),
                field(MOTION_SCORE, "scores_b"),
                field(io.String, "label_a", default="Baseline"),
                field(io.String, "label_b", default="Physics"),
                field(io.String, "filename_prefix", default="physmotion/report"),
                field(io.Boolean, "save", default=True),
                field(io.String, "about", optional=True, force_input=True),
            ],
            outputs=[result(io.Float, "delta"), result(io.String, "json"), result(io.Image, "plot")],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )

    @classmethod
    def execute(
        cls,
        scores_a: dict[str, Any],
        scores_b: dict[str, Any],
        label_a: str,
        label_b: str,
        filename_prefix: str,
        save: bool,
        about: str | None = None,
    ) -> io.NodeOutput:
        if label_a == label_b:
            label_a, label_b = f"A: {label_a}", f"B: {label_b}"
        reports = {label_a: scores_a, label_b: scores_b}
        delta = float(scores_b["loss"]["composite"] - scores_a["loss"]["composite"])
        content: dict[str, Any] = {
            "schema": "phys-pipeline/comfyui-report", "version": 1, "phys_pipeline": __version__, "delta": delta, "about": about,
            "reports": [{"label": label, **report} for label, report in reports.items()],
        }  # fmt: skip
        plot = score_plot(list(reports.values()), list(reports))
        if save:
            if not args.disable_metadata and cls.hidden.prompt is not None:  # as in ComfyUI's own pictures
                content["graph"] = cls.hidden.prompt
            folder, name, counter, _, _ = folder_paths.get_save_image_path(
                filename_prefix, folder_paths.get_output_directory(), plot.shape[1], plot.shape[0]
            )
            stem = Path(folder) / f"{name}_{counter:05}_"
            with atomic_file(stem.with_suffix(".json")) as temporary:
                temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            with atomic_file(stem.with_suffix(".png")) as temporary:
                Image.fromarray(plot).save(temporary, format="PNG")
        text = json.dumps({key: value for key, value in content.items() if key != "graph"}, indent=2, ensure_ascii=False)
        short = f"{label_b} minus {label_a}:\n{delta:+.3f} (negative: {label_b} is more coherent)"
        return io.NodeOutput(delta, text, as_image(plot), ui=shown(cls, short, plot))
