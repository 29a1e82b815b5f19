"""Agreement between raters beyond chance: Cohen's kappa of two labellers, Krippendorff's alpha of any number of raters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

Z95 = 1.959963984540054


class Kappa(NamedTuple):
    """Cohen's kappa, its 95 % interval, the plain share of equal answers, and how many items both judged.

    ``value`` and ``interval`` are None where both labellers gave one and the same answer to everything: chance alone explains it.
    """

    value: float | None
    interval: tuple[float, float] | None
    agreement: float
    items: int


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> Kappa:
    """Cohen's kappa of two labellers over the same items, with the large-sample interval of Fleiss, Cohen and Everitt (1969).

    Where the two agree on every item the interval has no width: it says nothing about other items.

    Raises:
        ValueError: no items, or lists of different lengths.
    """
    n = len(first)
    if n == 0 or len(second) != n:
        raise ValueError(f"kappa needs the same items from both labellers, got {n} and {len(second)}")
    cells = Counter(zip(first, second, strict=True))
    rows, columns = Counter(first), Counter(second)
    agreed = sum(count for (a, b), count in cells.items() if a == b) / n
    chance = sum(rows[label] * columns[label] for label in rows) / n**2
    if chance == 1.0:
        return Kappa(None, None, agreed, n)
    kappa = (agreed - chance) / (1 - chance)
    on, off = 0.0, 0.0
    for (a, b), count in cells.items():
        if a == b:
            on += count / n * ((1 - chance) - (rows[a] + columns[a]) / n * (1 - agreed)) ** 2
        else:
            off += count / n * ((columns[a] + rows[b]) / n) ** 2
    variance = (on + (1 - agreed) ** 2 * off - (agreed * chance - 2 * chance + agreed) ** 2) / (n * (1 - chance) ** 4)
    half = Z95 * math.sqrt(max(0.0, variance))
    return Kappa(kappa, (max(-1.0, kappa - half), min(1.0, kappa + half)), agreed, n)


def krippendorff_alpha(answers: Iterable[tuple[Hashable, Hashable]]) -> float | None:
    """Nominal alpha (Krippendorff 2011) of (item, answer) pairs: 1 full agreement, 0 what chance gives.

    Items with one answer are left out. None where no item has two answers, or every answer is the same.
    """
    by_item: dict[Hashable, list[Hashable]] = {}
    for item, answer in answers:
        by_item.setdefault(item, []).append(answer)
    judged = [given for given in by_item.values() if len(given) > 1]
    totals = Counter(answer for given in judged for answer in given)
    n = sum(totals.values())
    expected = sum(count * (n - count) for count in totals.values())
    if expected == 0:
        return None
    observed = sum(sum(count * (len(given) - count) for count in Counter(given).values()) / (len(given) - 1) for given in judged)
    return 1.0 - (n - 1) * observed / expected
