"""The web app: ``python app.py`` (``--help`` lists its options), or a Hugging Face Space, which imports ``demo``."""

from __future__ import annotations

import contextlib
import sys

with contextlib.suppress(ImportError):  # on a ZeroGPU Space it must be imported before torch
    import spaces  # noqa: F401

from phys_pipeline.web.app import build, main, options_of, settings_of

if __name__ == "__main__":
    sys.exit(main())

demo = build(settings_of(options_of(["--host", "0.0.0.0"])))
