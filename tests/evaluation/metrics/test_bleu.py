import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phys_pipeline.evaluation.metrics.bleu import ORDERS, bleu, evalcrafter_bleu, prompt_bleu, words

SENTENCES = st.lists(st.sampled_from("abcd"), max_size=8)


@pytest.mark.parametrize(
    ("candidate", "reference", "order", "expected"),
    [
        ("the the the the the the the", "the cat is on the mat", 1, 2 / 7),  # the example of Papineni et al., clipped counts
        ("a red dog moves", "a red square moves", 1, 3 / 4),
        ("a red dog moves", "a red square moves", 2, math.sqrt(3 / 4 * 1 / 3)),
        ("a red dog moves", "a red square moves", 3, 0.0),
        ("a red square", "a red square moves right", 2, math.exp(1 - 5 / 3)),  # shorter than the reference
        ("a red square", "a red square moves right", 4, math.exp(1 - 5 / 3)),  # has no four words: effective order 3
        ("a red square moves right now", "a red square moves right", 1, 5 / 6),  # longer: no penalty
        ("", "a red square", 1, 0.0),
    ],
)
def test_known_answers(candidate, reference, order, expected):
    assert bleu(candidate.split(), reference.split(), order) == pytest.approx(expected, abs=1e-12)


@given(SENTENCES, SENTENCES, st.sampled_from(ORDERS))
def test_lies_between_0_and_1_and_is_1_for_the_reference(candidate, reference, order):
    assert 0 <= bleu(candidate, reference, order) <= 1 + 1e-12
    if candidate:
        assert bleu(candidate, candidate, order) == pytest.approx(1)


def test_words_are_lower_case_without_punctuation():
    assert words("It's a Dog, running (fast)!") == ["it's", "a", "dog", "running", "fast"]


def test_the_best_caption_counts_for_each_order():
    captions = ["nothing at all", "A red dog moves."]
    assert prompt_bleu(captions, "a red square moves") == pytest.approx((3 / 4 + math.sqrt(1 / 4)) / 4)
    assert prompt_bleu(captions[:1], "a red square moves") == 0


def test_evalcrafter_counts_bleu_1_four_times():
    assert evalcrafter_bleu(["nothing here", "a red dog moves"], "a red square moves") == pytest.approx(3 / 4, abs=1e-6)


def test_evalcrafter_counts_case_and_punctuation():
    assert evalcrafter_bleu(["A red dog."], "a red dog") == pytest.approx(1 / 3, abs=1e-6)
    assert prompt_bleu(["A red dog."], "a red dog") == pytest.approx(1)


def test_evalcrafter_takes_a_higher_order_where_that_is_larger():
    """Of "b a b" two of three words are in "a b a", but both pairs of words are."""
    assert evalcrafter_bleu(["b a b"], "a b a") == pytest.approx((2 / 3 + 3 * math.sqrt(2 / 3)) / 4, abs=1e-6)


def test_evalcrafter_penalises_short_captions_and_survives_none():
    assert evalcrafter_bleu(["a red"], "a red square moves") == pytest.approx(math.exp(1 - 4 / 2), abs=1e-6)
    assert evalcrafter_bleu([""], "a red square") == pytest.approx(0, abs=1e-9)
