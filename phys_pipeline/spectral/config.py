"""Settings of the spectral motion loss and its two presets."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal

SLICES = ("translation", "rotation", "scaling")


@dataclass(frozen=True)
class SpectralConfig:
    """Every decision of the loss as a field; defaults are the ``calibrated`` preset.

    Use :meth:`calibrated` (default everywhere) or :meth:`paper` (arXiv 2506.02244v2 as printed) and override fields by keyword.
    An unknown field or a value out of range raises ``ValueError``.
    """

    preset: str = "calibrated"
    # cut: windows in time, half-overlapping patches in space
    window: int = 16  # frames in a window
    stride: int = 8  # frames between window starts; the last window ends at the last frame
    patches: int = 3  # patches per side, each with its own motion
    minimum_patch_side: int = 16  # one patch only when a side of the frame is shorter than this
    # spectrum
    keep: float = 0.3  # rho: kept share of the spatial frequencies per dimension ("Fixed values": 0.3)
    largest_frequency: float = 48.0  # cycles per longer side of the frame: no higher frequency is kept at any size; 0: no limit
    keep_time: float = 1.0  # rho_t: the same for the time axis
    truncation: Literal["signed", "one_sided"] = "signed"
    remove_mean: bool = True  # subtract the window-weighted temporal mean (the still part)
    apodise: bool = True  # raised cosine in space against the DFT's periodic wrap
    whiten: float = 1.0  # q: energies are multiplied by |omega_xy|^(2q)
    # translation
    energy_weighting: bool = True  # weights g E (the paper's theory) instead of g alone (its formula)
    wrap: bool = True  # distances to the plane modulo one temporal period: fast motion aliases, and is coherent all the same
    normalise: bool = True  # translation loss as the unexplained fraction of the variance of omega_t
    gate_sharpness: float = 10.0  # f
    gate_threshold: float = 0.1  # tau_E, relative to the largest energy
    ridge: float = 1e-3  # lambda, on weights of unit sum
    # rotation and scaling
    polar: Literal["magnitude", "complex"] = "magnitude"
    slope: Literal["grid", "closed_form"] = "grid"
    scaling_loss: Literal["line", "proxies"] = "line"
    rings: int = 20  # N_r
    angles: int = 48  # M
    radii: int = 32  # N_xi, log-spaced
    inner_radius: float = 1.5  # smallest radius in bins: below it the lattice is too coarse to interpolate
    scaling_harmonics: int = 8  # largest log-radius harmonic
    band_sigma: float = 0.6  # width of the Gaussian band, temporal bins
    band_half_width: float = 1.0  # Delta: half width of the paper's band, temporal bins
    ring_sharpness: float = 20.0  # edge sharpness of the soft rings and of the paper's band
    ring_weight: float = 0.0  # share of the ring term in the rotation loss (paper: 1/2)
    # composite
    slices: tuple[str, ...] = SLICES  # slices that the composite joins; fewer to ablate, none leaves pace and coherence
    pace_weight: float = 0.3  # of the pace term that is added to the composite (ours, not the paper's)
    coherence_weight: float = 0.5  # the same for the phase coherence term
    temperature: float = 0.1  # tau
    weighting: Literal["softmin", "detached", "coupled"] = "softmin"
    gradient: Literal["numerator", "full"] = "numerator"
    energy_floor: float = 1e-4  # eps_E: share of the still part's energy added to every denominator
    margin: float = 0.0  # excess form: loss above the reference that is not punished

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_type(field.name, str(field.type))
        self._check_slices()
        choices = {
            "truncation": ("signed", "one_sided"),
            "polar": ("magnitude", "complex"),
            "slope": ("grid", "closed_form"),
            "scaling_loss": ("line", "proxies"),
            "weighting": ("softmin", "detached", "coupled"),
            "gradient": ("numerator", "full"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        at_least = {
            "window": 1, "stride": 1, "patches": 1, "minimum_patch_side": 2,
            "rings": 2, "angles": 8, "radii": 4, "scaling_harmonics": 1,
        }  # fmt: skip
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("keep", "keep_time"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], not {getattr(self, name)}")
        for name in ("temperature", "band_sigma", "band_half_width", "ring_sharpness", "inner_radius", "gate_sharpness"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in (
            "whiten",
            "ridge",
            "ring_weight",
            "pace_weight",
            "coherence_weight",
            "energy_floor",
            "margin",
            "largest_frequency",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")

    def _check_slices(self) -> None:
        if not isinstance(self.slices, tuple | list) or any(name not in SLICES for name in self.slices):
            raise ValueError(f"slices must be some of {', '.join(SLICES)}, not {self.slices!r}")
        object.__setattr__(self, "slices", tuple(name for name in SLICES if name in self.slices))

    def _check_type(self, name: str, wanted: str) -> None:
        value = getattr(self, name)
        if wanted == "bool" and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")
        if wanted == "int" and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(f"{name} must be a whole number, not {value!r}")
        if wanted == "float" and (isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)):
            raise ValueError(f"{name} must be a finite number, not {value!r}")

    @classmethod
    def calibrated(cls, **overrides: Any) -> SpectralConfig:
        """The default preset: the paper's three slices, made to prefer coherent motion (docs/method.md)."""
        return cls()._override(overrides)

    @classmethod
    def paper(cls, **overrides: Any) -> SpectralConfig:
        """The loss as printed (method, App. "Implementation Details", table "Fixed values"), for reproduction and ablation."""
        return cls(
            preset="paper",
            patches=1,
            largest_frequency=0.0,
            keep_time=0.3,
            truncation="one_sided",
            remove_mean=False,
            apodise=False,
            whiten=0.0,
            energy_weighting=False,
            wrap=False,
            normalise=False,
            polar="complex",
            slope="closed_form",
            scaling_loss="proxies",
            angles=24,
            radii=24,
            inner_radius=1.0,
            ring_weight=0.5,
            pace_weight=0.0,
            coherence_weight=0.0,
            weighting="coupled",
            gradient="full",
            energy_floor=0.0,
        )._override(overrides)

    @property
    def uses_rings(self) -> bool:
        """Whether the loss, not only a diagnostic, reads the energy in rings."""
        return self.ring_weight > 0 or self.scaling_loss == "proxies"

    def _override(self, overrides: dict[str, Any]) -> SpectralConfig:
        known = [field.name for field in fields(self)]
        for name in overrides:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                raise ValueError(f"unknown field {name!r} of SpectralConfig" + (f"; did you mean {near[0]!r}?" if near else ""))
        return replace(self, **overrides)
