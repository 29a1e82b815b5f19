"""Motion spectra: the SIM(2) spectral motion loss and the motion report. Imports torch, nothing of this project, does no I/O."""

from .anchored import AnchoredMotionLoss
from .composite import MotionLossOutput, SpectralMotionLoss
from .config import SpectralConfig
from .report import MotionReport, analyze

__all__ = ["AnchoredMotionLoss", "MotionLossOutput", "MotionReport", "SpectralConfig", "SpectralMotionLoss", "analyze"]
