"""`tune knobs`: what is asked of the pipeline, and how it is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from command_line import Tune

from tuner.errors import UsageError
from tuner.knobs.knob import Knob
from tuner.knobs.status import KnobStatus
from tuner.pipeline.options import RunOptions
from tuner.report.listener import Listener


def knob(name: str) -> Knob:
    return Knob(
        name=name,
        carrier="xla_flag",
        type="bool",
        values=("unset", "false"),
        lane="option",
        acts_on="codegen",
        why="a fusion may be slower",
        source="a test",
        group="codegen",
    )


class Recorder:
    """Stands in for the pipeline: remembers what it was asked, and knows two knobs."""

    def __init__(self) -> None:
        self.asked: list[RunOptions] = []
        self.error: Exception | None = None

    def list_knobs(
        self, options: RunOptions, *, listener: Listener
    ) -> tuple[list[Knob], list[KnobStatus], dict[str, str]]:
        self.asked.append(options)
        if self.error is not None:
            raise self.error
        gone = KnobStatus(name="xla_old", status="unsupported", reason="this jaxlib has no such option")
        return [knob("xla_new"), knob("xla_old")], [gone], {"xla_new": "bool"}


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    module = ModuleType("tuner.pipeline.run")
    module.list_knobs = recorder.list_knobs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tuner.pipeline.run", module)
    return recorder


def test_every_knob_is_listed_with_its_reason(tune: Tune, pipeline: Recorder) -> None:
    got = tune("knobs")
    assert (got.code, got.err) == (0, "")
    assert "xla_new" in got.out
    assert "xla_old" in got.out
    assert "this jaxlib has no such option" in got.out


def test_without_a_workload_any_step_will_do(tune: Tune, pipeline: Recorder) -> None:
    tune("knobs")
    assert pipeline.asked[0].workload.is_dir()


def test_a_workload_and_the_options_reach_the_pipeline(tune: Tune, pipeline: Recorder, folder: Path) -> None:
    (folder / "f.py").write_text("def build(): ...\n")
    options = ["--platform", "cpu", "--override", "NCCL_PROTO", "--knob", "a=1", "--allow", "numerics"]
    assert tune("knobs", "f.py", "--space", "gpu", *options, "--", "8").code == 0
    asked = pipeline.asked[0]
    assert (asked.workload, asked.argv, asked.spaces) == (Path("f.py"), ("8",), ("gpu",))
    assert (asked.platform, asked.override, asked.hold) == ("cpu", ("NCCL_PROTO",), {"a": "1"})
    assert asked.allow == {"numerics"}


def test_json_is_one_document(tune: Tune, pipeline: Recorder) -> None:
    document = json.loads(tune("knobs", "--json").out)
    assert document["schema"] == "tuner/knobs/1"
    assert [entry["name"] for entry in document["knobs"]] == ["xla_new", "xla_old"]


def test_a_folder_is_no_workload(tune: Tune, pipeline: Recorder, folder: Path) -> None:
    got = tune("knobs", str(folder))
    assert (got.code, got.out, pipeline.asked) == (2, "", [])
    assert "is a folder" in got.err
    assert f"where: {folder}" in got.err


def test_an_unknown_space_is_told_as_the_pipeline_says(tune: Tune, pipeline: Recorder) -> None:
    pipeline.error = UsageError("unknown space 'gpuu'; did you mean gpu?", where="--space", next="tune knobs")
    got = tune("knobs", "--space", "gpuu")
    assert (got.code, got.out) == (2, "")
    assert "did you mean gpu?" in got.err
