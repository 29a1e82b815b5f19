"""BLEU of one sentence against one reference (Papineni et al. 2002), and the variant that EvalCrafter's numbers come from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

ORDERS = (1, 2, 3, 4)
_WORD = re.compile(r"\w+(?:'\w+)?")
_TINY, _SMALL = 1e-15, 1e-9  # pycocoevalcap's guards against 0 / 0


def words(text: str) -> list[str]:
    """Lower-case words; punctuation does not count."""
    return _WORD.findall(text.lower())


def bleu(candidate: Sequence[str], reference: Sequence[str], order: int) -> float:
    """BLEU up to n-grams of ``order`` in 0..1, unsmoothed.

    Orders for which the candidate is too short to have an n-gram are left out of the geometric mean (effective order); an order
    without a match gives 0.
    """
    counts = [_matches(candidate, reference, n) for n in range(1, order + 1)]
    used = [(correct, total) for correct, total in counts if total]
    if not used or any(correct == 0 for correct, _ in used):
        return 0.0
    mean = sum(math.log(correct / total) for correct, total in used) / len(used)
    return math.exp(mean + min(0.0, 1 - len(reference) / len(candidate)))


def prompt_bleu(captions: Sequence[str], prompt: str) -> float:
    """Mean over BLEU-1..4 of the best caption's BLEU against the prompt, in 0..1."""
    reference = words(prompt)
    return sum(max(bleu(words(caption), reference, order) for caption in captions) for order in ORDERS) / len(ORDERS)


def evalcrafter_bleu(captions: Sequence[str], prompt: str) -> float:
    """What EvalCrafter (1275bda) prints as the mean of BLEU-1..4, in 0..1.

    pycocoevalcap returns for BLEU-n the list of all orders up to n, and the maximum over captions is taken of the whole lists. So
    each of the four terms is a maximum over orders: BLEU-1, but for captions that repeat a word. Tokens are what blanks separate;
    case and punctuation count.
    """
    lists = [_coco_list(caption.split(), prompt.split()) for caption in captions]
    return sum(max(max(scores[:order]) for scores in lists) for order in ORDERS) / len(ORDERS)


def _coco_list(candidate: Sequence[str], reference: Sequence[str]) -> list[float]:
    """BLEU-1..4 as pycocoevalcap computes them for one pair."""
    scores, product = [], 1.0
    ratio = (len(candidate) + _TINY) / (len(reference) + _SMALL)
    brevity = math.exp(min(0.0, 1 - 1 / ratio))
    for order in ORDERS:
        correct, total = _matches(candidate, reference, order)
        product *= (correct + _TINY) / (total + _SMALL)
        scores.append(product ** (1 / order) * brevity)
    return scores


def _matches(candidate: Sequence[str], reference: Sequence[str], order: int) -> tuple[int, int]:
    """The candidate's n-grams that the reference has, each at most as often as there, and the number of all its n-grams."""
    found, wanted = _grams(candidate, order), _grams(reference, order)
    return sum(min(count, wanted[gram]) for gram, count in found.items()), sum(found.values())


def _grams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[start : start + order]) for start in range(len(tokens) - order + 1))
