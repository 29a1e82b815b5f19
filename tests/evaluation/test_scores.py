"""Which rows count: one backend, one status, in range."""

from __future__ import annotations

import pytest
from evaluation_rows import info, row

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.scores import collect, incomparable, share_ends, values_of

INFOS = (info("flow_score", low=0.0), info("share", low=0.0, high=100.0), info("free"))


def scores(*rows):
    return collect(rows, INFOS)


def test_a_standin_is_never_averaged_with_the_real_metric():
    rows = [
        row("a", "p0", "flow_score", 1.0, status="standin", backend="dis"),
        row("a", "p1", "flow_score", 2.0, status="standin", backend="dis"),
        row("a", "p2", "flow_score", 5.0, backend="raft"),
    ]
    found = scores(*rows)["a"]["flow_score"]
    assert found.values == {("p2", 0): 5.0} and (found.status, found.backend) == ("ok", "raft")
    assert [(left.id, left.reason) for left in found.left_out] == [
        ("p0", "stand-in of dis (version 1): not averaged with raft (version 1)"),
        ("p1", "stand-in of dis (version 1): not averaged with raft (version 1)"),
    ]
    standins = scores(*rows[:2])["a"]["flow_score"]
    assert standins.status == "standin" and len(standins.values) == 2


@pytest.mark.parametrize("other", [{"backend": "two"}, {"version": 2}])
def test_two_backends_or_versions_are_not_averaged(other):
    rows = [row("a", f"p{i}", "free", 1.0, backend="one") for i in range(3)] + [
        row("a", "p9", "free", 9.0, **{"backend": "one", **other})
    ]
    found = scores(*rows)["a"]["free"]
    assert len(found.used) == 3 and [left.id for left in found.left_out] == ["p9"]


def test_a_value_out_of_range_is_a_failure():
    found = scores(row("a", "p0", "share", 324.0), row("a", "p1", "share", -26.0), row("a", "p2", "share", 100.0))["a"]["share"]
    assert found.values == {("p2", 0): 100.0}
    assert [(left.status, left.reason) for left in found.left_out] == [
        ("failed", "324 is outside the metric's range [0, 100]"),
        ("failed", "-26 is outside the metric's range [0, 100]"),
    ]
    assert scores(row("a", "p0", "flow_score", -1.0))["a"]["flow_score"].reason == "-1 is outside the metric's range [0, inf]"
    assert scores(row("a", "p0", "free", -1e9))["a"]["free"].status == "ok"


def test_without_values_the_commonest_reason_is_given_and_a_failure_outweighs():
    skipped = [row("a", f"p{i}", "free", None, reason="too short") for i in range(2)]
    assert scores(*skipped, row("a", "p9", "free", None, reason="other"))["a"]["free"].reason == "too short"
    mixed = scores(*skipped, row("a", "p9", "free", None, status="failed", reason="broken"))["a"]["free"]
    assert (mixed.status, mixed.reason, len(mixed.left_out)) == ("failed", "broken", 3)


def test_rows_that_nobody_can_use_are_errors():
    with pytest.raises(DataError, match="two rows for free of a/p0#0"):
        scores(row("a", "p0", "free", 1.0), row("a", "p0", "free", 2.0))
    with pytest.raises(DataError, match="nothing describes"):
        scores(row("a", "p0", "unheard_of", 1.0))
    with pytest.raises(DataError, match="evalcrafter and fixed"):
        scores(row("a", "p0", "free", 1.0), row("a", "p1", "free", 1.0, protocol="evalcrafter"))


def test_what_can_be_compared():
    one = scores(row("a", "p0", "free", 1.0))["a"]["free"]
    same = scores(row("b", "p0", "free", 2.0), row("b", "p1", "free", 2.0))["b"]["free"]
    assert incomparable(one, same) == ""
    assert "stand-in" in incomparable(one, scores(row("b", "p0", "free", 2.0, status="standin"))["b"]["free"])
    assert "other 3" in incomparable(one, scores(row("b", "p0", "free", 2.0, backend="other 3"))["b"]["free"])
    assert "version 2" in incomparable(one, scores(row("b", "p0", "free", 2.0, version=2))["b"]["free"])
    assert incomparable(one, scores(row("b", "p7", "free", 2.0))["b"]["free"]) == "no prompt and seed in common"
    assert incomparable(one, scores(row("b", "p0", "free", None))["b"]["free"]) == "nothing moves"
    assert same.of(set()).reason == "no clip in common" and incomparable(one, same.of(set())) == "no clip in common"
    assert same.of({("p0", 0)}).values == {("p0", 0): 2.0} and same.of({("p0", 0), ("p1", 0)}) is same
    assert values_of({"x": one, "y": same}) == {("p0", 0), ("p1", 0)}


def test_a_metric_is_a_share_when_no_column_has_another_value_than_its_ends():
    def ends(metric, *columns):
        rows = [row(f"m{c}", f"p{i}", metric.key, value) for c, values in enumerate(columns) for i, value in enumerate(values)]
        return share_ends(metric, [found[metric.key] for found in scores(*rows).values()])

    assert ends(INFOS[1], [0.0, 100.0], [100.0, 100.0]) == (0.0, 100.0)
    assert ends(INFOS[1], [100.0, 100.0], [99.0, 100.0]) is None  # saturated in one column, a number all the same
    assert ends(INFOS[0], [0.0, 0.0]) is None
