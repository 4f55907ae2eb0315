"""What holds for the whole suite: people wait for it, and it runs often."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("suite", max_examples=25, deadline=None)
settings.load_profile("suite")

_WHOLE_FILE = re.compile(r"^pytestmark = pytest\.mark\.(\w+)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not even read in: a file all of whose tests are of a tier that `-m "not …"` leaves out."""
    left_out = re.fullmatch(r"not (\w+)(?: and not (\w+))*", config.option.markexpr)
    if left_out is None or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    tier = _WHOLE_FILE.search(collection_path.read_text())
    return True if tier and f"not {tier[1]}" in config.option.markexpr.split(" and ") else None
