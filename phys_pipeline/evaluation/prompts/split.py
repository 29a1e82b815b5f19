"""Split files: who labelled which prompt how. Reports per stratum and per motion are made of these."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.agreement import Kappa, cohen_kappa
from phys_pipeline.evaluation.prompts.label import Label
from phys_pipeline.evaluation.prompts.prompt_set import Prompt, PromptSet

SCHEMA, VERSION = "phys-pipeline/split", 1
FIELDS = ("motion", "stratum", "direction", "amplitude")  # what two splits are compared in


@dataclass(frozen=True)
class Split:
    """Labels by the prompt's SHA-256. ``set_sha`` says which prompt set they were made for, ``labeller`` by whom."""

    labels: Mapping[str, Label]
    labeller: str
    set_sha: str
    ids: Mapping[str, str]  # SHA-256 -> id, for people

    def write(self, path: Path) -> None:
        """Write JSON, one label a line."""
        head = {"schema": SCHEMA, "version": VERSION, "labeller": self.labeller, "set": self.set_sha}
        lines = [
            json.dumps({"prompt": sha, "id": self.ids[sha], **label.to_dict()}, ensure_ascii=False)
            for sha, label in self.labels.items()
        ]
        text = json.dumps(head)[:-1] + ', "labels": [\n' + ",\n".join(lines) + "\n]}\n"
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Split:
        """Read what :meth:`write` wrote. Raises DataError when it is no split file."""
        content = _read_json(path)
        if not isinstance(content, dict) or content.get("schema") != SCHEMA or content.get("version") != VERSION:
            raise DataError(f'{path} is no split file (it needs "schema": "{SCHEMA}", "version": {VERSION})')
        try:
            entries = content["labels"]
            labels = {entry["prompt"]: Label.from_dict(entry) for entry in entries}
            return cls(labels, content["labeller"], content["set"], {entry["prompt"]: entry["id"] for entry in entries})
        except (KeyError, TypeError) as error:
            raise DataError(f"{path} is a damaged split file ({type(error).__name__}: {error})") from None


def make_split(
    prompts: PromptSet, labeller: Callable[[Prompt], Label], name: str, overrides: Mapping[str, Mapping[str, Any]] | None = None
) -> Split:
    """Labels of a whole set. ``overrides`` (id -> fields of a label) win, with labeller "override" and confidence 1."""
    overrides = overrides or {}
    unknown = sorted(set(overrides) - set(prompts.by_id))
    if unknown:
        raise DataError(f"overrides name prompts that the set lacks: {', '.join(unknown[:5])}")
    labels = {}
    for prompt in prompts:
        if prompt.id in overrides:
            labels[prompt.sha] = replace(Label.from_dict(overrides[prompt.id]), labeller="override", confidence=1.0)
        else:
            labels[prompt.sha] = labeller(prompt)
    return Split(labels, name, prompts.sha, {prompt.sha: prompt.id for prompt in prompts})


def author_label(prompt: Prompt) -> Label:
    """The label that the set itself carries. Raises DataError where it has none."""
    if prompt.label is None:
        raise DataError(f"prompt {prompt.id} carries no label: use another labeller")
    return prompt.label


def read_overrides(path: Path) -> dict[str, dict[str, Any]]:
    """``{"ID": {"motion": "rotation", "direction": "clockwise"}, ...}``. Raises DataError."""
    content = _read_json(path)
    if not isinstance(content, dict) or not all(isinstance(fields, dict) for fields in content.values()):
        raise DataError(f'{path}: overrides look like {{"t001": {{"motion": "translation", "direction": "left"}}}}')
    return content


def compare(first: Split, second: Split, field: str) -> tuple[Kappa, list[tuple[str, str, str]]]:
    """Agreement on one of ``FIELDS`` over the prompts in both, and (id, first's value, second's) where they differ.

    Raises:
        DataError: no prompt is in both.
    """
    shared = [sha for sha in first.labels if sha in second.labels]
    if not shared:
        raise DataError("the two split files have no prompt in common")
    pairs = [(sha, *(split.labels[sha].sample_labels().get(field, "none") for split in (first, second))) for sha in shared]
    kappa = cohen_kappa([a for _, a, _ in pairs], [b for _, _, b in pairs])
    return kappa, [(first.ids[sha], a, b) for sha, a, b in pairs if a != b]


def counts(labels: Iterable[Label], field: str) -> dict[str, int]:
    """How many labels have each value of one of ``FIELDS``, most first."""
    values = Counter(label.sample_labels().get(field, "none") for label in labels)
    return dict(values.most_common())


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON: {error}") from None
