"""The web app: ``python app.py`` (``--help`` lists its options), or a Hugging Face Space."""

from __future__ import annotations

import contextlib
import sys

with contextlib.suppress(ImportError):  # on a ZeroGPU Space it must be imported before torch
    import spaces  # noqa: F401

from phys_pipeline.web.app import prepare, serve

demo, options = prepare(sys.argv[1:] if __name__ == "__main__" else [])

if __name__ == "__main__":
    serve(demo, options)
