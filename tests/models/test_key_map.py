import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.key_map import KeyMap, Rule, interleave, swap_halves

MAP = KeyMap(
    rules=(
        Rule("b.{i}.qkv.{p}", ("c.{i}.q.{p}", "c.{i}.k.{p}", "c.{i}.v.{p}")),
        Rule("b.{i}.both.{p}", ("c.{i}.v2.{p}", "c.{i}.up.{p}"), shares=(1, 4)),
        Rule(("one.weight", "two.weight"), "joined.weight", join="columns", shares=(2, 1)),
        Rule(("one.bias", "two.bias"), "joined.bias", join="sum"),
        Rule("turned", "interleaved", order=interleave(4)),
        Rule("ends", "swapped", order=swap_halves()),
        Rule("plain.{rest}", "renamed.{rest}"),
    ),
    ignored=("buffer.{i}",),
)


def checkpoint():
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "b.0.qkv.weight": (6, 3), "b.0.qkv.bias": (6,), "b.11.both.weight": (10, 2), "one.weight": (2, 4), "two.weight": (2, 2),
        "one.bias": (2,), "two.bias": (2,), "turned": (8, 2), "ends": (4,), "plain.a.b": (3,), "buffer.3": (1,),
    }  # fmt: skip
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def test_names_and_layouts():
    old = checkpoint()
    new = MAP.forward(old)
    assert list(new) == [
        "c.0.q.weight", "c.0.k.weight", "c.0.v.weight", "c.0.q.bias", "c.0.k.bias", "c.0.v.bias", "c.11.v2.weight",
        "c.11.up.weight", "joined.weight", "joined.bias", "interleaved", "swapped", "renamed.a.b",
    ]  # fmt: skip
    assert torch.equal(new["c.0.k.weight"], old["b.0.qkv.weight"][2:4])
    assert torch.equal(new["c.11.up.weight"], old["b.11.both.weight"][2:])
    assert torch.equal(new["joined.weight"], torch.cat([old["one.weight"], old["two.weight"]], 1))
    assert torch.equal(new["joined.bias"], old["one.bias"] + old["two.bias"])
    assert torch.equal(new["interleaved"], old["turned"][[0, 2, 1, 3, 4, 6, 5, 7]])
    assert torch.equal(new["swapped"], old["ends"][[2, 3, 0, 1]])


def test_the_way_back_gives_the_same_checkpoint_and_of_a_sum_the_same_sum():
    old = checkpoint()
    back = MAP.backward(MAP.forward(old))
    assert set(back) == set(old) - {"buffer.3"}
    for name in set(back) - {"one.bias", "two.bias"}:
        assert torch.equal(back[name], old[name]), name
    assert torch.equal(back["one.bias"] + back["two.bias"], old["one.bias"] + old["two.bias"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b.x.qkv.weight": (6, 3)}, r"doesn't know: b\.x\.qkv\.weight$"),
        ({f"odd{k}": (1,) for k in range(5)}, r"doesn't know: odd0, odd1, odd2 and 2 more"),
        ({"two.weight": None}, r"holds one\.weight but not two\.weight"),
        ({"b.0.qkv.weight": (7, 3)}, r"7 rows can't be cut in the ratio 1:1:1"),
        ({"turned": (6, 2)}, r"6 rows are no whole number of heads of 4"),
    ],
)
def test_what_no_rule_fits_is_named(change, message):
    tensors = checkpoint() | {name: torch.zeros(shape) for name, shape in change.items() if shape is not None}
    tensors = {name: value for name, value in tensors.items() if change.get(name, ()) is not None}
    with pytest.raises(ConfigError, match=message):
        MAP.forward(tensors)


def test_a_rule_does_not_both_join_and_cut():
    with pytest.raises(ConfigError, match="both joins and cuts"):
        Rule(("a", "b"), ("c", "d"))
