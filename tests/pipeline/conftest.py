"""A whole `tune` on a FakeMachine, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import made_up_knobs
import msgspec
import pytest
from made_up_knobs import knob

from tuner.machine import Sampler
from tuner.pipeline.options import RunOptions
from tuner.pipeline.run import Outcome, tune
from tuner.session import FakeMachine

_PRESET = """
[[preset]]
name = "published"
settings = { xla_bad = "true", xla_good = "true" }
source = "test"
"""
SPACE = made_up_knobs.space(
    knob("xla_good"),
    knob("xla_bad"),
    knob("xla_inert", acts_on="codegen"),
    knob("xla_breaks", type="enum", values=("unset", "A", "B")),
    knob(
        "FAKE_VARIABLE",
        carrier="env",
        type="string",
        values=("unset", "1", ""),
        lane="environment",
        acts_on="runtime",
    ),
    knob("xla_removed_no_such"),  # no compiler has it
    _PRESET,
)

Tune = Callable[..., Outcome]


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "made_up.toml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def options(tmp_path: Path, space: Path) -> RunOptions:
    workload = tmp_path / "workload.py"
    workload.write_text("def build():\n    raise RuntimeError('never executed: the machine is made up')\n")
    return RunOptions(
        workload=workload,
        spaces=(str(space),),
        platform="cpu",
        store=str(tmp_path / "store"),
        budget_s=200.0,
        command=("tune", "workload.py"),
    )


@pytest.fixture
def tune_on(
    request: pytest.FixtureRequest, options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Tune:
    """`tune_on(machine, **changes)` runs the whole pipeline on `machine` with the fixture's options changed. The Optuna
    study is only written for tests marked `mirrored`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # the device lock of this test alone
    if "mirrored" not in request.keywords:
        monkeypatch.setattr("tuner.store.study.StudyMirror.open", lambda *_, **__: None)
        monkeypatch.setattr("tuner.store.study.StudyMirror.record", lambda *_, **__: "")

    def call(machine: FakeMachine, *, conditions: Sampler | None = None, **changes: object) -> Outcome:
        return tune(
            msgspec.structs.replace(options, **changes),  # type: ignore[arg-type]
            factory=machine.factory,
            conditions=conditions,
            clock=machine.now,
        )

    return call
