"""``python -m tuner`` is ``tune``."""

from __future__ import annotations

import sys

from tuner.cli import main

if __name__ == "__main__":
    sys.exit(main())
