"""The columns of a report: which videos stand side by side, and which part each plays in the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.controls import PREFIX

ROLES = (
    "", "baseline", "base_loss", "flow_loss", "ours", "without_translation", "without_rotation", "without_scaling", "control",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One set of videos, made in one way.

    Args:
        key: ``VideoSample.model`` of its videos; ``label`` is its heading (default: the key).
        role: of :data:`ROLES`; picks the column for the layouts of the paper's tables.
        base: name of the base model; columns of one base are compared with its baseline.
        adapter, lora, loss: file or name of the adapter, its rank and targets, what it was trained with.

    Raises:
        ConfigError: an empty key or an unknown role.
    """

    key: str
    label: str = ""
    role: str = ""
    base: str = ""
    adapter: str = ""
    lora: str = ""
    loss: str = ""

    def __post_init__(self) -> None:
        if not self.key:
            raise ConfigError("a column needs a key")
        if self.role not in ROLES:
            raise ConfigError(f"column {self.key}: unknown role {self.role!r}; use one of {', '.join(filter(None, ROLES))}")

    def to_dict(self) -> dict[str, str]:
        """As in `report.json`."""
        return {**asdict(self), "label": self.label or self.key}


def control_column(key: str) -> Column:
    """The column of the controls ``key``, for example "control:half_speed"."""
    return Column(key, key.removeprefix(PREFIX).replace("_", " "), role="control")


def baseline_of(column: Column, columns: Sequence[Column]) -> Column | None:
    """What ``column`` is measured against: the baseline of its base, else the first column; None for that one itself.

    Controls are made of the clips of the first baseline.
    """
    usable = [other for other in columns if other.role != "control"]
    baselines = [other for other in usable if other.role == "baseline"]
    named = baselines if column.role == "control" else [other for other in baselines if other.base == column.base]
    found = (named or usable)[0]
    return None if found.key == column.key else found
