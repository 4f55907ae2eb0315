from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_samples import started, write_log

from tuner.machine import Device, Host, Interpreter
from tuner.store.events import Notice
from tuner.store.folder import Store, open_store
from tuner.store.identity import earlier_run, new_run, run_id, run_identity

HOST = Host(cpu="Made Up 9000", cores=2, memory_bytes=1 << 33, kernel="Linux 6")
PYTHON = Interpreter(path="/env/bin/python", python="3.11.7", packages={"jax": "0.10.2", "jaxlib": "0.10.2"})
CARD = Device(index=0, name="Card", uuid="GPU-1", driver="580.1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "s")


def parts(tmp_path: Path, **changes: Any) -> dict[str, str]:
    workload = tmp_path / "n body.py"
    workload.write_text(changes.pop("text", ""))
    given: dict[str, Any] = {
        "spaces": {"cpu": "d1"},
        "options": {"min_gain": "0.005"},
        "interpreter": PYTHON,
        "devices": (),
        "host": HOST,
        "env": {"XLA_FLAGS": "--a=1", "HOME": "/root", "TF_CPP_MIN_LOG_LEVEL": "1"},
    }
    return run_identity(workload, **(given | changes))


def test_the_same_command_has_the_same_id(tmp_path: Path) -> None:
    first = run_id(parts(tmp_path))
    assert first == run_id(parts(tmp_path))
    assert re.fullmatch(r"n-body-[0-9a-f]{6}", first)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "x = 1"},
        {"spaces": {"cpu": "d2"}},
        {"spaces": {"cpu": "d1", "precision": "d1"}},
        {"options": {"min_gain": "0.01"}},
        {"interpreter": msgspec.structs.replace(PYTHON, path="/other/bin/python")},
        {"interpreter": msgspec.structs.replace(PYTHON, packages={"jax": "0.12.0", "jaxlib": "0.10.2"})},
        {"devices": (CARD,)},
        {"host": msgspec.structs.replace(HOST, cores=1)},
        {"host": msgspec.structs.replace(HOST, quota=1.0)},
        {"env": {"XLA_FLAGS": "--a=2"}},
        {"env": {"XLA_FLAGS": "--a=1", "NCCL_ALGO": "Ring"}},
    ],
)
def test_what_changes_results_starts_another_run(tmp_path: Path, change: dict[str, Any]) -> None:
    assert run_id(parts(tmp_path)) != run_id(parts(tmp_path, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"XLA_FLAGS": "--a=1", "HOME": "/elsewhere"}},
        {"env": {"XLA_FLAGS": "--a=1", "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_LOGGING_LEVEL": "DEBUG"}},
        {"host": msgspec.structs.replace(HOST, load=7.0)},
        {"host": msgspec.structs.replace(HOST, quota=8.0)},
    ],
)
def test_what_does_not_change_results_continues_the_run(tmp_path: Path, change: dict[str, Any]) -> None:
    assert run_id(parts(tmp_path)) == run_id(parts(tmp_path, **change))


def test_another_card_of_the_same_kind_continues_the_run(tmp_path: Path) -> None:
    other = msgspec.structs.replace(CARD, index=3, uuid="GPU-3")
    first = parts(tmp_path, devices=(CARD,), env={"CUDA_VISIBLE_DEVICES": "0"})
    assert first == parts(tmp_path, devices=(other,), env={"CUDA_VISIBLE_DEVICES": "3"})


def test_a_run_is_found_again_and_a_fresh_one_is_numbered(store: Store) -> None:
    identity = {"name": "nbody", "workload": "ab12"}
    assert earlier_run(store, identity) is None
    first = new_run(store, identity)
    assert run_id(identity) == first.id
    assert first == earlier_run(store, identity)  # killed before its first event
    write_log(first.events, [started(first.id)])
    assert first == earlier_run(store, identity)
    names = [new_run(store, identity).id for _ in range(10)]
    assert [f"{first.id}-{n}" for n in range(2, 12)] == names
    assert names[-1] == getattr(earlier_run(store, identity), "id", "")  # 11 comes after 9


def test_a_run_with_the_same_hash_and_another_identity_is_passed_over(store: Store) -> None:
    identity = {"name": "nbody", "workload": "other"}
    write_log(new_run(store, identity).events, [started()])
    assert earlier_run(store, identity) is None
    assert f"{run_id(identity)}-2" == new_run(store, identity).id


def test_a_log_without_a_run_start_is_not_continued(store: Store) -> None:
    identity = {"name": "nbody", "workload": "ab12"}
    write_log(new_run(store, identity).events, [Notice(text="x")])
    assert earlier_run(store, identity) is None


def test_a_name_taken_in_the_same_moment_is_skipped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = {"name": "nbody"}
    new_run(store, identity)
    monkeypatch.setattr("tuner.store.identity._numbered", lambda store, base: [])
    assert f"{run_id(identity)}-2" == new_run(store, identity).id
