"""``phys-pipeline doctor``: what each metric needs, whether it is here, under which licence, and how to get it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.flow import RAFT_HELP, STANDS_FOR
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.pretrained import fetch
from phys_pipeline.evaluation.registry import GROUPS, classes_of, infos, metric_class, select

_USAGE = "phys-pipeline doctor [METRIC or group ...] [--fetch] [--json]"


def main(arguments: Sequence[str]) -> int:
    """Print the table, after ``--fetch`` has downloaded what is missing. Exit code 1 when a metric that was named can't run."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline doctor",
        description="Show which metrics can run here, and what the others need: packages, weights, licences, sizes.",
    )
    parser.add_argument("metrics", nargs="*", metavar="METRIC", help=f"metrics or groups (all, {', '.join(GROUPS)}); default all")
    parser.add_argument("--fetch", action="store_true", help="download what the metrics named need, from the Hub")
    parser.add_argument("--weights-dir", metavar="FOLDER", help="where files lie that no Hub has")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    keys = select(options.metrics or ["all"])
    if options.fetch:
        if not options.metrics:
            raise ConfigError(
                "--fetch downloads gigabytes: name the metrics, for example phys-pipeline doctor clip_score --fetch"
            )
        for weights in dict.fromkeys(weights for key in keys for weights in infos()[key].weights):
            fetch(weights)
    rows = examine(keys, Settings(weights_dir=options.weights_dir))
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    return 1 if options.metrics and not all(row["available"] for row in rows) else 0


def examine(keys: Sequence[str], settings: Settings) -> list[dict[str, Any]]:
    """One entry per metric: key, label, group, packages, weights, whether it can run here, why not or what will be loaded."""
    found = []
    for name in classes_of(keys):
        wanted = [info for info in metric_class(name).infos if info.key in keys]
        available = metric_class(name)(settings).available()
        for info in wanted:
            found.append(
                {
                    "metric": info.key, "label": info.label, "groups": list(info.groups), "available": available.ok,
                    "reason": available.reason, "packages": list(info.packages), "standin_for": info.standin_for,
                    "weights": [
                        {"repository": w.repository, "revision": w.revision, "bytes": w.bytes, "licence": w.licence}
                        for w in info.weights
                    ],
                }
            )  # fmt: skip
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Plain text for a terminal."""
    lines = []
    width = max(len(row["metric"]) for row in rows)
    for row in rows:
        state = "missing" if not row["available"] else "to load" if row["reason"] else "ready"
        standin = f"; stands in for {row['standin_for']} without its weights" if row["standin_for"] else ""
        needs = ", ".join(row["packages"]) or "nothing beyond the base install"
        lines.append(f"{row['metric']:{width}}  {state:7}  {needs}{standin}")
        for weights in row["weights"]:
            lines.append(
                f"{'':{width}}           {weights['repository']} @ {weights['revision'][:12]}, {size(weights['bytes'])}, "
                f"licence {weights['licence']}"
            )
        if row["reason"]:
            lines.append(f"{'':{width}}           {row['reason']}")
    ready = sum(row["available"] for row in rows)
    advice = [RAFT_HELP] if any(row["standin_for"] == STANDS_FOR for row in rows) else []
    return "\n".join([*lines, "", *advice, f"{ready} of {len(rows)} metrics can run here"])


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
