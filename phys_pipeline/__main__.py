"""``python -m phys_pipeline``: the command line."""

import sys

from phys_pipeline.cli import main

sys.exit(main())
