"""What can be compared is read alike, whatever it comes from."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest
from handoff_samples import FASTER
from synthetic_run import MALLOC, MATH, SCENARIOS, faster

from tuner.errors import UsageError
from tuner.handoff import write_bundle
from tuner.measure.types import Verdict
from tuner.report.document import document
from tuner.report.sides import UNCHANGED, Side, read_side
from tuner.report.view import RunView
from tuner.store.events import AnyEvent, RunStarted
from tuner.store.held import held_text
from tuner.store.lines import encode
from tuner.store.log import EventLog


def kept(folder: Path, events: list[AnyEvent]) -> Path:
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    return folder


def side(path: Path, store: str = "nowhere") -> Side:
    return read_side(str(path), store=store)


def test_a_run_and_its_document_say_the_same(tmp_path: Path) -> None:
    run = side(kept(tmp_path / "run", faster()))
    (tmp_path / "run.json").write_text(json.dumps(document(RunView.of(faster()))))
    doc = side(tmp_path / "run.json")
    assert (run.kind, doc.kind) == ("run", "document")
    for name in (
        "label",
        "workload",
        "program",
        "identity",
        "settings",
        "verdict",
        "pairs",
        "control_ms",
        "best_ms",
    ):
        assert getattr(run, name) == getattr(doc, name), name
    assert run.gain is not None
    assert doc.gain is not None
    assert (doc.gain.gain, doc.gain.low, doc.gain.high) == pytest.approx((run.gain.gain, run.gain.low, run.gain.high))
    lost = [{name for name, (status, _) in of.left.items() if status == "unsupported"} for of in (run, doc)]
    assert lost[0] == lost[1] == {"xla_cpu_enable_xnnpack", "xla_cpu_use_thunk_runtime"}
    assert run.settings == {MATH: "false", MALLOC: "1"}
    assert len(run.control_pairs) == len(run.best_pairs) == 6


def test_a_held_value_may_have_blanks(tmp_path: Path) -> None:
    held = {"layers": "2, 4", "width": "512"}
    first, *rest = faster()
    assert isinstance(first, RunStarted)
    events = [msgspec.structs.replace(first, options={**first.options, "hold": held_text(held)}), *rest]
    (tmp_path / "run.json").write_text(json.dumps(document(RunView.of(events))))
    assert side(kept(tmp_path / "run", events)).held == side(tmp_path / "run.json").held == held


def test_where_the_defaults_stay_the_gain_is_nothing_and_known(tmp_path: Path) -> None:
    found = side(kept(tmp_path / "same", SCENARIOS["same"]()))
    assert found.gain == UNCHANGED
    assert found.measured is not None
    assert found.measured.speedup == pytest.approx(1.001)
    assert found.best_pairs == found.control_pairs != ()


@pytest.mark.parametrize("name", ["interrupted", "unstable", "all_failed"])
def test_other_ends_of_a_run_are_sides_too(tmp_path: Path, name: str) -> None:
    found = side(kept(tmp_path / name, SCENARIOS[name]()))
    assert (found.gain is None) == (name == "interrupted")
    assert found.settings == {}


def test_a_bundle_is_one(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundles", FASTER)
    found = side(bundle.path)
    assert (found.kind, found.verdict, found.settings) == ("bundle", Verdict.FASTER, bundle.manifest.settings)
    assert found.gain == bundle.manifest.estimate
    assert side(bundle.path / "manifest.json").settings == found.settings
    newer = write_bundle(tmp_path / "bundles", FASTER)
    assert side(tmp_path / "bundles").label.endswith(newer.path.name)


def test_an_env_file_has_settings_alone(tmp_path: Path) -> None:
    path = tmp_path / "best.env"
    cache = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=none\nJAX_COMPILATION_CACHE_DIR=/x\n"
    path.write_text(f"# comment\nXLA_FLAGS=--xla_a=true --xla_b= --xla_c\nMALLOC_ARENA_MAX=1\n{cache}")
    found = side(path)
    assert found.settings == {"xla_a": "true", "xla_b": "", "xla_c": "true", "MALLOC_ARENA_MAX": "1"}
    assert (found.kind, found.gain, found.workload) == ("env-file", None, "")
    assert (found.name, found.label) == (str(path), "best.env")


def test_ids_are_looked_up_in_the_store(tmp_path: Path) -> None:
    kept(tmp_path / "store" / "runs" / "nbody-3f9ac2", faster())
    assert read_side("nbody", store=str(tmp_path / "store")).workload == "nbody"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: (d / "x").mkdir() or d / "x", "is an empty folder"),
        (lambda d: d / "missing.json", "no such file"),
        (lambda d: d / "missing.env", "no such file"),
        (lambda d: d / "a" / "run", "no such file or folder"),
        (lambda d: written(d / "other.json", '{"schema": "tuner/trial/1"}'), "has the schema 'tuner/trial/1'"),
        (lambda d: written(d / "none.json", '{"a": 1}'), "names no schema"),
        (lambda d: written(d / "list.json", "[1]"), "is no document of a run"),
        (lambda d: written(d / "short.json", '{"schema": "tuner/run/1"}'), "is no document of a run"),
        (lambda d: written(d / "x.env", "export A=1\n"), "'export' belongs to a shell"),
        (lambda d: written(d / "text.txt", "hello\n"), "is no event log of a run"),
    ],
)
def test_what_is_none_is_said_so(tmp_path: Path, make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError) as caught:
        side(make(tmp_path))
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.next


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_interval_that_is_not_known_makes_no_gain(tmp_path: Path) -> None:
    values = document(RunView.of(faster()))
    values["speedup_ci"] = None
    (tmp_path / "run.json").write_text(json.dumps(values))
    assert side(tmp_path / "run.json").gain is None
    assert math.isfinite(UNCHANGED.gain)


def test_a_log_that_is_being_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with EventLog(tmp_path / "run" / "events.jsonl") as log:
        for event in faster()[:30]:
            log.append(event)
        assert side(tmp_path / "run").verdict is None
