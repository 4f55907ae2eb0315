"""Property tests try few examples each time: people wait for this suite, and it runs often."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("suite", max_examples=25, deadline=None)
settings.load_profile("suite")
