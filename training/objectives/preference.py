"""`preference`: a clip and its corrupted copy as winner and loser, no label needed.

Flow-matching form of Diffusion-DPO (Wallace et al. 2023, arXiv:2311.12908, eq. 14) as in Flow-DPO (Liu et al. 2025,
arXiv:2501.13918), with real clips as winners and broken copies as losers (after Discriminator-free DPO, arXiv:2504.08542). Both
copies get the same noise and noise level. Squared errors are means over elements, not sums, so beta is large.

A corruption is a loser only to a sound clip: a jittered copy of a clip that jitters anyway teaches little, and the wrong thing
where the copy is the smoother one. With a `score` the spectral motion loss decides how much a pair counts (ours).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from phys_pipeline.media.corruptions import corrupt
from training.objectives.term import TermResult

_FULL = 0.2  # difference of motion loss from which on a pair counts in full
LATENT_CORRUPTIONS = ("reverse", "shuffle", "stutter")  # these only reorder frames, so they need no pixels


class Preference:
    """Prefer clean clips to corrupted ones, relative to the base model.

    With squared errors e of the trained and r of the base model, the gain is g = (r_w - e_w) - (r_l - e_l): how much more the
    winner has improved than the loser. ``dpo``: -log sigmoid(beta / 2 * g), log 2 where nothing is learnt yet. ``hinge``:
    relu(margin - g), which stops at the margin. Raising the loser's error lowers both as much as improving the winner does: keep
    the denoising loss beside it (it always is here).

    Args:
        kinds: corruptions to draw from, one per sample.
        decode, encode: both given: pixels are corrupted. The loser is then x0 + E(corrupted) - E(D(x0)), so that the
            autoencoder's own losses are no sign of a loser. Otherwise latent frames are reordered.
        drop_first: the first latent frame covers one picture where the others cover several; it stays where it is.
        score: motion loss (B,) of latents (B, C, T, H, W). A pair then counts as far as its loser's is higher, in full from 0.2
            on, not at all where it is lower (or where the two can't be told apart: reversed motion has the same spectrum).
    """

    def __init__(
        self,
        kinds: Sequence[str] = LATENT_CORRUPTIONS,
        *,
        form: Literal["dpo", "hinge"] = "dpo",
        beta: float = 500.0,
        margin: float = 0.01,
        decode: Callable[[Tensor], Tensor] | None = None,
        encode: Callable[[Tensor], Tensor] | None = None,
        drop_first: bool = False,
        score: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.score = score
        self.kinds, self.form, self.beta, self.margin = tuple(kinds), form, beta, margin
        self.decode, self.encode, self.drop_first = decode, encode, drop_first

    @torch.no_grad()
    def loser(self, x0: Tensor, seeds: Sequence[int]) -> Tensor:
        """Corrupted copies of latents (B, C, T, H, W); a sample's kind and draws depend on its seed alone."""
        # x0: (B, C, T, H, W)
        losers = []
        for clip, seed in zip(x0, seeds, strict=True):
            generator = torch.Generator().manual_seed(seed)
            kind = self.kinds[int(torch.randint(len(self.kinds), (1,), generator=generator))]
            draw = int(torch.randint(2**31, (1,), generator=generator))
            if self.decode is not None and self.encode is not None:
                pixels = self.decode(clip[None].float())
                both = (self.encode(corrupt(pixels, kind, seed=draw)), self.encode(pixels))
                losers.append(clip + (both[0] - both[1])[0].to(clip))
            else:
                kept = int(self.drop_first)
                losers.append(torch.cat([clip[:, :kept], corrupt(clip[:, kept:], kind, seed=draw)], dim=1))
        return torch.stack(losers)

    @torch.no_grad()
    def counts(self, winner: Tensor, loser: Tensor) -> Tensor:
        """How much each pair of latents (B, C, T, H, W) counts, (B,) in [0, 1]; 1 without a score."""
        if self.score is None:
            return torch.ones(len(winner), device=winner.device)
        return ((self.score(loser) - self.score(winner)) / _FULL).nan_to_num(0.0).clamp(0.0, 1.0)

    def __call__(
        self,
        winner: Tensor,
        loser: Tensor,
        base_winner: Tensor,
        base_loser: Tensor,
        counts: Tensor | None = None,  # (B,)
    ) -> TermResult:
        """Loss from prediction errors (B, C, T, H, W) of the trained model on both copies and of the base model on both.

        ``counts`` weigh the pairs, all alike without them. Samples with a value that is not finite are left out and counted.
        """
        # all: (B, C, T, H, W), prediction minus target
        errors = (winner, loser, base_winner, base_loser)
        usable = torch.stack([torch.isfinite(_mean_square(error.detach())) for error in errors]).all(dim=0)
        rows = torch.nonzero(usable).flatten()
        trained_winner, trained_loser, reference_winner, reference_loser = (_mean_square(error[rows]) for error in errors)
        gain = (reference_winner.detach() - trained_winner) - (reference_loser.detach() - trained_loser)
        values = -F.logsigmoid(0.5 * self.beta * gain) if self.form == "dpo" else torch.relu(self.margin - gain)
        if counts is not None:
            values = values * counts[rows]
        return TermResult(values.sum() / len(winner), values.detach(), len(winner) - len(rows))


def _mean_square(error: Tensor) -> Tensor:  # (B, ...) -> (B,)
    return error.float().square().flatten(1).mean(dim=1)
