"""Finding a run by its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.store import RunFolder, find_run, runs_at
from tuner.store.events import RunStarted
from tuner.store.find import similar_files
from tuner.store.log import EventLog


def keep(store: Path, name: str, *, age_s: float) -> RunFolder:
    run = RunFolder(path=store / "runs" / name)
    run.create()
    with EventLog(run.events) as log:
        log.append(
            RunStarted(
                run=name,
                workload="f.py",
                command=(),
                identity={},
                options={},
                inherited={},
                tuner="0",
            )
        )
    stamp = run.events.stat().st_mtime - age_s
    os.utime(run.events, (stamp, stamp))
    return run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[RunFolder, ...]:
    for name, age_s in (("f-aaa111", 20), ("f-aaa222", 0), ("g-bbb333", 10)):
        keep(tmp_path, name, age_s=age_s)
    return runs_at(str(tmp_path))


def test_the_newest_run_comes_last(runs: tuple[RunFolder, ...]) -> None:
    assert [run.id for run in runs] == ["f-aaa111", "g-bbb333", "f-aaa222"]


def test_looking_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert runs_at(".tuner") == runs_at("postgresql://host/db") == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "found"), [("f-aaa111", "f-aaa111"), ("g", "g-bbb333"), ("f-aaa2", "f-aaa222")])
def test_a_name_or_the_beginning_of_one_will_do(runs: tuple[RunFolder, ...], name: str, found: str) -> None:
    assert find_run(runs, name, where="RUN").id == found


def test_a_whole_name_counts_even_if_others_begin_so(tmp_path: Path) -> None:
    keep(tmp_path, "f-1", age_s=1)
    keep(tmp_path, "f-1-2", age_s=0)
    assert find_run(runs_at(str(tmp_path)), "f-1", where="RUN").id == "f-1"


def test_several_are_told_apart_by_the_user(runs: tuple[RunFolder, ...]) -> None:
    with pytest.raises(UsageError, match="'f-aaa' could be any of 2 runs") as caught:
        find_run(runs, "f-aaa", where="RUN")
    assert (caught.value.where, caught.value.next) == ("RUN", "name one of them: f-aaa111, f-aaa222")


def test_an_unknown_one_gets_a_suggestion(runs: tuple[RunFolder, ...]) -> None:
    with pytest.raises(UsageError, match=r"unknown run 'f-aab111'; did you mean f-aaa111\?") as caught:
        find_run(runs, "f-aab111", where="RUN")
    assert "g-bbb333, f-aaa222" in caught.value.next
    with pytest.raises(UsageError, match="unknown run ''") as caught:
        find_run((), "", where="RUN")
    assert caught.value.next == "tune WORKLOAD"


def test_files_are_similar_by_their_names_without_the_ending(tmp_path: Path) -> None:
    for name in ("nbody.py", "script.py", "nbody_2.py", "nbdy.txt"):
        (tmp_path / name).touch()
    assert similar_files(tmp_path / "nbdy.py") == [tmp_path / "nbody.py", tmp_path / "nbody_2.py"]
    assert similar_files(tmp_path / "missing.py") == []
    assert similar_files(tmp_path / "none" / "nbody.py") == []
