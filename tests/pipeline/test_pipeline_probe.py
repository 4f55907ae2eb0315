"""Which knobs a run offers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.errors import SpaceError
from tuner.knobs import UNSET, load_spaces
from tuner.pipeline.probe import offered_knobs
from tuner.pipeline.workload_file import inspect


def run_of(path: Path, declared: dict[str, tuple[str, ...]]) -> Any:
    """What `offered_knobs` asks of a run whose workload is the file at `path`."""
    path.write_text("def build(unroll=1, NPROC=2):\n    ...\n")
    return SimpleNamespace(
        space=load_spaces(["cpu"]), loaded=SimpleNamespace(knobs_declared=declared), workload=inspect(path)
    )


def test_a_workloads_own_knobs_come_after_the_spaces(tmp_path: Path) -> None:
    """Without the value that build() takes by itself."""
    run = run_of(tmp_path / "w.py", {"unroll": ("1", "2")})
    *space, own = offered_knobs(run)
    assert tuple(space) == run.space.knobs
    assert (own.name, own.values) == ("unroll", (UNSET, "2"))


def test_a_knob_of_the_workload_with_the_name_of_another_is_refused(tmp_path: Path) -> None:
    """One name would stand for two settings. The message names both places."""
    with pytest.raises(SpaceError, match=r"NPROC is declared here and in the search space cpu") as refused:
        offered_knobs(run_of(tmp_path / "w.py", {"NPROC": ("1",)}))
    assert refused.value.where.endswith("w.py")
    assert refused.value.next
