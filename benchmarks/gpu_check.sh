#!/bin/sh
# What this project claims about GPUs, checked on one: same losses and gradients as on the processor, and what they cost.
# Run from the repository's root in an environment with the "dev" extra and a CUDA (or, on a Mac, MPS) build of torch:
#     sh benchmarks/gpu_check.sh [cuda|mps]
# It takes two or three minutes and writes nothing.
set -eu
device="${1:-cuda}"
python - "$device" <<'PYTHON'
import sys

import torch

module = {"cuda": torch.cuda, "mps": torch.backends.mps}.get(sys.argv[1])
if module is None:
    sys.exit(f"unknown device {sys.argv[1]!r}: use cuda or mps")
if not module.is_available():
    sys.exit(f"torch {torch.__version__} sees no {sys.argv[1]} device: install a build of torch for it, or run this on such a machine")
print("torch", torch.__version__, "on", torch.cuda.get_device_name() if sys.argv[1] == "cuda" else "mps")
PYTHON
python -m pytest -q -rs tests/spectral/test_devices.py
python benchmarks/loss_cost.py --device "$device" --repeats 20
