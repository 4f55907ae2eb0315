"""`tune doctor`: exit code, one document, and the interpreter it asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Tune


@pytest.fixture
def fake(folder: Path) -> str:
    """An interpreter that has found everything in order: it answers with the mark it is given."""
    answer = {
        "python": "3.12.1",
        "packages": {"jax": "0.12.0", "jaxlib": "0.12.0"},
        "jax": "0.12.0",
        "jaxlib": "0.12.0",
        "platform": "cpu",
        "devices": ["cpu"],
        "traced": "",
    }
    file = folder / "fake" / "python"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\nprintf '%s%s\\n' \"$4\" '{json.dumps(answer)}'\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.slow
def test_a_machine_in_order_is_exit_0(tune: Tune, fake: str) -> None:
    got = tune("doctor", "--python", fake)
    assert (got.code, got.err) == (0, "")
    assert "0.12.0 with jaxlib 0.12.0" in got.out
    assert "fail" not in got.out
    assert "\x1b" not in got.out


@pytest.mark.slow
def test_a_failed_check_is_exit_1_and_one_document(tune: Tune, fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 foo=1")
    got = tune("doctor", "nowhere.py", "--python", fake, "--json")
    assert (got.code, got.err) == (1, "")
    document = json.loads(got.out)
    assert (document["schema"], document["ok"]) == ("tuner/doctor/1", False)
    assert {f["check"] for f in document["findings"] if f["level"] == "fail"} == {"XLA_FLAGS", "workload"}


@pytest.mark.slow
def test_a_workload_is_looked_up(tune: Tune, fake: str, folder: Path) -> None:
    (folder / "f.py").write_text("def build(): ...\n")
    got = tune("doctor", "f.py", "--python", fake)
    assert got.code == 0
    assert "f.py was not tuned yet" in got.out
    assert "fix: tune f.py" in got.out
    assert not (folder / ".tuner").exists()


def test_an_interpreter_that_is_not_there_is_a_usage_error(tune: Tune) -> None:
    got = tune("doctor", "--python", "./none/python")
    assert (got.code, got.out) == (2, "")
    assert "the interpreter './none/python' is not there" in got.err
