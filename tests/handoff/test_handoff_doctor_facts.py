"""What the doctor reads of an interpreter and of this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from doctor_samples import FINE, of, with_

from tuner.errors import WorkloadError
from tuner.handoff.doctor import gather
from tuner.handoff.doctor.checkup import ask
from tuner.handoff.doctor.facts import WorkloadFact


def program(folder: Path, text: str) -> str:
    """An interpreter that is none."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.slow
def test_an_interpreter_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    found = ask(program(tmp_path, f'sleep 60 & echo $! > "{pid}"; wait'), dict(os.environ), timeout_s=0.5)
    assert found.ended == "no answer within 0.5 s"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{int(pid.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            break
        if state == "Z":  # dead, and nobody here reaps orphans
            break
        time.sleep(0.02)
    else:
        pytest.fail("a process was left behind")


@pytest.mark.slow
def test_only_marked_lines_count_and_the_end_is_told(tmp_path: Path) -> None:
    """$4 is the mark: the fourth word behind the program's name is its last argument."""
    text = 'echo \'{"jax": "1"}\'; echo "$4"\'{"jax": "2"}\'; echo last words >&2; kill -ABRT $$'
    found = ask(program(tmp_path, text), dict(os.environ))
    assert (found.jax, found.ended, found.log) == ("2", f"ended by {signal.SIGABRT.name}", ("last words",))


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert ask(str(tmp_path / "none"), {}).ended == "can't be started: No such file or directory"


@pytest.mark.slow
def test_facts_of_this_machine_without_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise WorkloadError("is not Python", where=str(path), next="fix it")

    monkeypatch.chdir(tmp_path)
    facts = gather(
        {"JAX_COMPILATION_CACHE_DIR": "here/deep", "CUDA_VISIBLE_DEVICES": ""},
        python=program(tmp_path, "exit 3"),
        store="store",
        workload=Path("f.py"),
        inspect=refuse,
    )
    assert facts.checkup.ended == "ended with exit code 3"
    assert facts.workload == WorkloadFact(path="f.py", trouble="is not Python", next="fix it")
    assert [f.purpose for f in facts.folders] == ["store", "temporary", "cache"]
    assert all(f.free_bytes > 0 and not f.trouble for f in facts.folders)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["python"]  # looking makes no folder
    assert of(facts, "python", "fail")


@pytest.mark.jax
def test_a_real_interpreter_tells_all_of_itself(tmp_path: Path) -> None:
    env = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))}
    (tmp_path / "json.py").write_text("raise SystemExit('taken for the standard library')\n")
    os_folder = os.getcwd()
    os.chdir(tmp_path)
    try:
        found = ask(sys.executable, {**env, "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": "/c"})
    finally:
        os.chdir(os_folder)
    assert (found.ended, found.log) == ("", ())
    assert (found.platform, found.platforms, found.devices, found.traced) == ("cpu", "cpu", ("cpu",), "")
    assert found.jax == found.packages["jax"]
    assert found.jaxlib == found.packages["jaxlib"]
    assert found.cache["jax_compilation_cache_dir"] == "/c"
    assert "JAX_ENABLE_X64" in found.config_names
    assert {"XLA_PYTHON_CLIENT_MEM_FRACTION", "CUDA_VISIBLE_DEVICES"} <= {*found.names}


@pytest.mark.jax
def test_a_flag_that_ends_the_process_leaves_what_was_known_before() -> None:
    found = ask(sys.executable, {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_no_such_flag=1"})
    assert (found.jax != "", found.platform) == (True, "")
    assert "xla_no_such_flag" in found.log[-1]
    facts = with_(FINE, env={"XLA_FLAGS": "--xla_no_such_flag=1"}, checkup=found)
    assert "xla_no_such_flag" in of(facts, "XLA_FLAGS", "fail").what
