"""Adapters that come with the package, for the embedded model, and the pair of videos that shows the first of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.adapters.lora import PROVENANCE_FILE

ASSETS = Path(__file__).parents[1] / "assets"
DEMO_FILE = ASSETS / "demo.json"


@dataclass(frozen=True)
class EmbeddedAdapter:
    """An adapter that comes with the package, for the embedded model."""

    name: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / WEIGHTS_FILE

    @property
    def shown(self) -> str:
        """Its place relative to a checkout, for command lines."""
        return f"phys_pipeline/assets/{self.folder.relative_to(ASSETS).as_posix()}"


def embedded_adapters() -> dict[str, EmbeddedAdapter]:
    """Adapters below ``assets`` by name, those called after physics first. One made for another embedded model is left out."""
    from phys_pipeline.families.sources import description

    revision = description(None).get("revision")
    found = [
        EmbeddedAdapter(file.parent.name, file.parent)
        for file in sorted(ASSETS.glob(f"**/{WEIGHTS_FILE}"))
        if _base_revision(file.parent) in (None, revision)
    ]
    found.sort(key=lambda adapter: "physics" not in adapter.name)
    return {adapter.name: adapter for adapter in found}


def demo_pair() -> tuple[str, int]:
    """Prompt and seed of the pair that `make demo` shows, as ``training/choose_demo.py`` chose it by its rule."""
    chosen = json.loads(DEMO_FILE.read_text(encoding="utf-8"))
    return str(chosen["prompt"]), int(chosen["seed"])


def _base_revision(folder: Path) -> str | None:
    try:
        return json.loads((folder / PROVENANCE_FILE).read_text(encoding="utf-8")).get("revision")
    except (OSError, ValueError):
        return None
