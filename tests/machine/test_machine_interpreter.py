from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.machine.interpreter import read_interpreter


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_our_own_interpreter_is_read_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *a, **k: pytest.fail("started a process"))
    found = read_interpreter()
    assert found.path == os.path.abspath(sys.executable)
    assert found.python == platform.python_version()
    assert found.packages["jax"] == importlib.metadata.version("jax")


@pytest.mark.slow
def test_another_interpreter_is_asked(tmp_path: Path) -> None:
    # A link elsewhere is another interpreter: it would find another environment.
    other = program(tmp_path / "python", f'exec {sys.executable} "$@"')
    found = read_interpreter(other)
    assert found.path == other
    assert found.packages == read_interpreter().packages


@pytest.mark.slow
def test_files_of_the_current_folder_do_not_stand_in_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('wrong json')")
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may name the current folder itself
    monkeypatch.chdir(tmp_path)
    other = program(tmp_path / "python", f'exec {sys.executable} "$@"')
    assert read_interpreter(other).packages["jax"]


@pytest.mark.slow
def test_output_before_the_answer_is_skipped(tmp_path: Path) -> None:
    other = program(tmp_path / "python", f'echo loading modules; exec {sys.executable} "$@"')
    assert read_interpreter(other).python == platform.python_version()


@pytest.mark.slow
def test_a_name_is_looked_up_on_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = program(tmp_path / "mypython", f'exec {sys.executable} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert read_interpreter("mypython").path == other


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("echo '[\"3.11.1\", {}]'", "has no jax"),
        ('echo \'["3.11.1", {"jax": "0.10.2"}]\'', "has no jaxlib"),
        ("echo broken >&2; exit 3", "status 3 and said: broken"),
        ("echo nonsense", "doesn't run as a Python"),
        ("true", "it answers nothing that a Python would"),
    ],
)
def test_an_unusable_interpreter_is_named_with_a_way_out(tmp_path: Path, text: str, what: str) -> None:
    other = program(tmp_path / "python", text)
    with pytest.raises(UsageError, match=what) as caught:
        read_interpreter(other)
    assert other in caught.value.what
    assert caught.value.where == "--python"
    assert "pip install jax" in caught.value.next or "has jax" in caught.value.next


def test_a_missing_program_is_named() -> None:
    with pytest.raises(UsageError, match="no program /nowhere/python"):
        read_interpreter("/nowhere/python")
