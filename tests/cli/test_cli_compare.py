"""`tune compare`: forms, exit codes, and what it says of wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Tune

DOCUMENT = Path(__file__).parents[1] / "report" / "data" / "run-1.json"
H200 = Path(__file__).parents[1] / "benchmarks" / "results" / "h200"
LOGS = [str(H200 / f"{name}-jax0.11.2.events.jsonl.gz") for name in ("pipeline", "pipeline-2")]


def keep(folder: Path, name: str, speedup: float, **changes: Any) -> str:
    """A run's document with this speed-up, give or take 1 %."""
    values = json.loads(DOCUMENT.read_text())
    values |= {"run": name, "speedup": speedup, "speedup_ci": [speedup * 0.99, speedup * 1.01], **changes}
    (folder / f"{name}.json").write_text(json.dumps(values))
    return f"{name}.json"


@pytest.fixture
def pair(folder: Path) -> tuple[str, str]:
    return keep(folder, "old", 1.5), keep(folder, "new", 1.4)


def test_text_says_who_gains_what(tune: Tune, pair: tuple[str, str]) -> None:
    got = tune("compare", *pair)
    assert (got.code, got.err) == (0, "")
    assert "new against old: 0.933x (0.920–0.947)" in got.out


def test_confirmed_slower_exits_with_3_and_says_it(tune: Tune, pair: tuple[str, str]) -> None:
    got = tune("compare", *pair, "--fail-if-slower", "1%")
    assert got.code == 3
    assert "new gains more than 1% less over its default than old" in got.err
    assert "new against old" in got.out
    assert tune("compare", *pair, "--fail-if-slower", "9%").code == 0
    assert tune("compare", *reversed(pair), "--fail-if-slower", "1%").code == 0


def test_slower_by_time_is_told_by_time(tune: Tune) -> None:
    """Of the same settings the gains may well be alike."""
    got = tune("compare", *LOGS, "--fail-if-slower", "0.1%", "--by-time")
    assert got.code == 3
    assert got.err.endswith("more than 0.1% slower than pipeline-8ddba0: 0.985x (0.974–0.996) in time a step\n")


def test_times_without_samples_are_no_check(tune: Tune, pair: tuple[str, str]) -> None:
    got = tune("compare", *pair, "--fail-if-slower", "1%", "--by-time")
    assert (got.code, got.out) == (2, "")
    assert "two step times a side" in got.err


def test_json_is_one_document(tune: Tune, pair: tuple[str, str]) -> None:
    got = tune("compare", *pair, "--format", "json", "--fail-if-slower", "1%")
    values = json.loads(got.out)
    assert (values["schema"], values["slower"], got.code) == ("tuner/compare/1", ["new"], 3)


@pytest.mark.parametrize(("form", "start"), [("html", "<!DOCTYPE html>"), ("md", "# tune: ")])
def test_other_forms_to_a_file(tune: Tune, pair: tuple[str, str], folder: Path, form: str, start: str) -> None:
    got = tune("compare", *pair, "--format", form, "--out", "c.txt")
    assert (got.code, got.out) == (0, "c.txt\n")
    assert (folder / "c.txt").read_text().startswith(start)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["old.json"], "nothing to compare with"),
        (["old.json", "nobody"], "unknown run 'nobody'"),
        (["old.json", "missing.json"], "no such file"),
        (["old.json", "other.json"], "has the schema 'tuner/trial/1'"),
        (["old.json", "empty"], "is an empty folder"),
        (["old.json", "new.json", "--fail-if-slower", "1"], "could mean"),
        ([], "A B [C...] is missing"),
    ],
)
def test_wrong_input_exits_with_2(
    tune: Tune, pair: tuple[str, str], folder: Path, argv: list[str], message: str
) -> None:
    (folder / "other.json").write_text('{"schema": "tuner/trial/1"}')
    (folder / "empty").mkdir()
    got = tune("compare", *argv)
    assert (got.code, got.out) == (2, "")
    assert message in got.err
