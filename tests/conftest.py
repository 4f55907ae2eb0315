"""What holds for the whole suite: people wait for it, and it runs often."""

from __future__ import annotations

import functools
import gc
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# Also where the mark is the first of several.
_WHOLE_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not even read in: a file all of whose tests are of a tier that `-m "not …"` leaves out."""
    left_out = re.fullmatch(r"not (\w+)(?: and not (\w+))*", config.option.markexpr)
    if left_out is None or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    tier = _WHOLE_FILE.search(collection_path.read_text())
    return True if tier and f"not {tier[1]}" in config.option.markexpr.split(" and ") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes hundreds of thousands of objects and drops hardly any: looking for garbage among them again and
    again takes a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collectstart() -> None:
    """Only a process that collects needs Hypothesis: the one that hands out the work to the others doesn't."""
    _set_hypothesis()


@functools.cache
def _set_hypothesis() -> None:
    from hypothesis import settings

    settings.register_profile("suite", max_examples=25, deadline=None)
    settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def _disk_is_not_waited_for() -> Iterator[None]:
    """What a test writes need not outlive a power cut: tests of what is synchronised, and when, have an fsync of their
    own; processes that tests start have the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", os.fstat)  # as strict about what it is given
        yield
