from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from store_samples import (
    ASSETS,
    EMPTY,
    ENVIRONMENT,
    FAST,
    PROGRAM,
    baselined,
    confirmed,
    probed,
    sealed,
    started,
    trial,
    write_log,
)

from tuner.errors import StoreUnusable
from tuner.measure.types import UNSETTLED, Verdict
from tuner.store.events import AnyEvent, RunFinished
from tuner.store.folder import RunFolder, Store, open_store
from tuner.store.index import Index
from tuner.store.log import read
from tuner.store.records import ConfirmRecord
from tuner.store.tables import SCHEMA

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "s")


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    index = Index(store.url, runs=store.runs)
    yield index
    index.close()


def database(store: Store) -> Path:
    return store.root / "tuner.db"


def count(store: Store, table: str) -> int:
    connection = sqlite3.connect(database(store))
    try:
        return int(connection.execute(f"SELECT count(*) FROM tuner_{table}").fetchone()[0])
    finally:
        connection.close()


def run_of(store: Store, name: str, *middle: AnyEvent, exit_code: int | None = 0) -> list[AnyEvent]:
    """A run in the store, with a verdict if `middle` has one."""
    end = [] if exit_code is None else [RunFinished(exit_code=exit_code)]
    return write_log(store.run(name).events, [started(name), probed(), baselined(), *middle, *end])


def test_a_whole_run_fills_every_table(store: Store, index: Index) -> None:
    assert index.record(write_log(store.run("a").events)) == ""
    tables = ("programs", "environments", "configs", "runs", "trials", "verdicts", "bundles", "cache_keys")
    assert {t: count(store, t) for t in tables} == {
        "programs": 1,
        "environments": 1,
        "configs": 3,
        "runs": 1,
        "trials": 4,
        "verdicts": 1,
        "bundles": 1,
        "cache_keys": 1,
    }


def test_recording_again_changes_nothing(store: Store, index: Index) -> None:
    events = write_log(store.run("a").events)
    for end in (2, 10, 10, len(events)):
        assert index.record(events[:end]) == ""
    other = Index(store.url)  # another process knows nothing of what was written
    assert other.record(events) == ""
    other.close()
    assert count(store, "trials") == 4
    assert count(store, "verdicts") == 1


def test_a_proven_config_is_found_for_its_program_and_environment_only(store: Store, index: Index) -> None:
    assert index.best_for(PROGRAM, ENVIRONMENT.key) == []
    index.record(run_of(store, "a", confirmed(FAST, gain=0.05)))
    (known,) = index.best_for(PROGRAM, ENVIRONMENT.key)
    assert (known.config, known.estimate.gain, known.run, known.time) == (FAST, 0.05, "a", 10**9 + 3)
    assert index.best_for("another program", ENVIRONMENT.key) == []
    assert index.best_for(PROGRAM, "another environment") == []


def test_newest_verdicts_come_first_and_overrule_older_ones(store: Store, index: Index) -> None:
    both = FAST.join(EMPTY)
    index.record(run_of(store, "a", confirmed(FAST)))
    index.record(run_of(store, "b", trial(0), confirmed(EMPTY)))
    index.record(run_of(store, "c", trial(0), trial(1), confirmed(both)))
    assert [both, EMPTY, FAST] == [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)]
    index.record(run_of(store, "d", trial(0), trial(1), trial(2), confirmed(EMPTY, Verdict.SAME, 0.0)))
    assert [both, FAST] == [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)]


def test_only_runs_of_the_same_objective_answer(store: Store, index: Index) -> None:
    index.record(run_of(store, "a", confirmed(FAST)))
    far = msgspec.structs.replace(started("b"), options={"objective": "p99"})
    verdicts = (confirmed(FAST, Verdict.SAME, 0.0), confirmed(EMPTY))
    index.record(write_log(store.run("b").events, [far, probed(), baselined(), *verdicts, RunFinished(exit_code=0)]))
    assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == [FAST]
    assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key, objective="p99")] == [EMPTY]
    assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key, objective="p50")] == []
    spreads = [index.pair_spread(PROGRAM, ENVIRONMENT.key, objective=o) for o in ("mean", "p99", "p50")]
    assert [known and known[1] for known in spreads] == [12, 23, None]


@pytest.mark.parametrize("verdict", UNSETTLED)
def test_a_verdict_that_settles_nothing_overrules_none(store: Store, index: Index, verdict: Verdict) -> None:
    index.record(run_of(store, "a", confirmed(FAST)))
    index.record(run_of(store, "b", trial(0), confirmed(FAST, verdict)))
    assert [k.run for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == ["a"]


def test_the_spread_between_pairs_is_pooled_over_earlier_finalists(store: Store, index: Index) -> None:
    assert index.pair_spread(PROGRAM, ENVIRONMENT.key) is None
    index.record(run_of(store, "a", confirmed(FAST)))
    sd, pairs = index.pair_spread(PROGRAM, ENVIRONMENT.key) or (0.0, 0)
    assert (sd, pairs) == (pytest.approx(0.001 * math.sqrt(12)), 12)
    index.record(run_of(store, "b", trial(0), confirmed(EMPTY)))
    assert index.pair_spread(PROGRAM, ENVIRONMENT.key) == (pytest.approx(sd), 23)
    assert index.pair_spread("another program", ENVIRONMENT.key) is None


def test_equal_run_ids_of_two_machines_do_not_mix(store: Store, index: Index) -> None:
    events = run_of(store, "a", trial(0))
    elsewhere = [msgspec.structs.replace(e, time=e.time + 0.5) for e in events]
    index.record(events)
    index.record(elsewhere)
    assert count(store, "runs") == 2
    assert count(store, "trials") == 2


def test_a_locked_database_costs_a_notice_and_no_result(store: Store, index: Index) -> None:
    events = run_of(store, "a", trial(0), confirmed())
    index.record(events[:2])
    holder = sqlite3.connect(database(store))
    holder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    assert "locked" in index.record(events, limit_s=0.3)
    assert time.monotonic() - began < 5
    holder.close()
    assert index.record(events) == ""
    assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == [FAST]


def test_a_lock_that_is_given_back_in_time_is_not_even_noticed(store: Store, index: Index) -> None:
    events = run_of(store, "a", trial(0))
    index.record(events[:2])
    holder = sqlite3.connect(database(store), check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.3, holder.close)
    timer.start()
    try:
        assert index.record(events, limit_s=30.0) == ""
    finally:
        timer.join()
    assert count(store, "trials") == 1


def test_opening_a_locked_database_ends_with_an_error(store: Store, index: Index) -> None:
    holder = sqlite3.connect(database(store))
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnusable, match="locked") as caught:
        index.open(limit_s=0.1)
    holder.close()
    assert "tuner.db" in caught.value.where
    index.open()


def test_a_reader_does_not_hold_up_the_writer(store: Store, index: Index) -> None:
    events = run_of(store, "a", trial(0))
    index.record(events[:2])
    reader = sqlite3.connect(database(store))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM tuner_runs").fetchall()
    assert index.record(events, limit_s=0.0) == ""
    reader.close()


@pytest.mark.parametrize("place", ["start", "middle"])
def test_a_damaged_database_is_kept_aside_and_made_anew_from_the_logs(store: Store, place: str) -> None:
    first = Index(store.url, runs=store.runs)
    for number in range(5):
        first.record(run_of(store, f"r{number}", *[trial(i) for i in range(40)], confirmed()))
    first.close()
    data = bytearray(database(store).read_bytes())
    offset = 0 if place == "start" else len(data) // 2
    data[offset : offset + 4096] = b"\xff" * 4096
    database(store).write_bytes(bytes(data))
    database(store).with_name("tuner.db-wal").unlink(missing_ok=True)

    index = Index(store.url, runs=store.runs)
    assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == [FAST]
    index.close()
    assert bytes(data) == database(store).with_name("tuner.db.corrupt-1").read_bytes()
    assert count(store, "trials") == 200
    assert "tuner.db.corrupt-1" in index.notices[0]


def test_a_database_damaged_during_a_run_loses_nothing(store: Store, index: Index) -> None:
    index.record(run_of(store, "earlier", trial(0), confirmed()))
    events = run_of(store, "a", trial(0), trial(1), exit_code=None)
    index.record(events[:4])
    database(store).write_bytes(b"nonsense" * 4096)
    for name in ("tuner.db-wal", "tuner.db-shm"):
        database(store).with_name(name).unlink(missing_ok=True)
    assert "kept as tuner.db.corrupt-1" in index.record(events)
    assert count(store, "runs") == 2
    assert count(store, "trials") == 3
    assert index.record(events) == ""


def test_runs_that_the_database_has_missed_are_taken_up_on_opening(store: Store, index: Index) -> None:
    run_of(store, "a", trial(0), confirmed())
    index.open()
    assert count(store, "trials") == 1
    unfinished = run_of(store, "b", trial(0), exit_code=None)
    index.record(unfinished[:2])
    later = Index(store.url, runs=store.runs)
    later.open()
    later.close()
    assert count(store, "trials") == 2


def test_a_broken_log_is_left_out_with_a_notice(store: Store, index: Index) -> None:
    run_of(store, "a", trial(0))
    run_of(store, "b", trial(0))
    path = store.run("a").events
    path.write_bytes(path.read_bytes().replace(b"baseline", b"b"))
    index.open()
    assert count(store, "trials") == 1
    assert "runs/a/events.jsonl" in index.notices[0]


def test_rebuilding_forgets_rows_that_the_log_does_not_have(store: Store, index: Index) -> None:
    events = run_of(store, "a", trial(0), trial(1), confirmed())
    index.record(events)
    path = store.run("a").events
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    index.rebuild([store.run("a")])
    assert count(store, "trials") == 1
    assert count(store, "verdicts") == 0


def test_rebuilding_goes_on_past_a_broken_log_and_keeps_its_rows(store: Store, index: Index) -> None:
    index.record(run_of(store, "a", trial(0)))
    index.record(run_of(store, "b", trial(0), trial(1)))
    path = store.run("a").events
    path.write_bytes(path.read_bytes().replace(b"baseline", b"b"))
    later = store.run("b").events
    later.write_bytes(b"".join(later.read_bytes().splitlines(keepends=True)[:4]))
    assert index.rebuild([store.run("a"), store.run("b")]) == 1
    assert count(store, "trials") == 2
    assert "runs/a/events.jsonl" in index.notices[0]


def test_rebuilding_leaves_out_a_run_without_events(store: Store, index: Index) -> None:
    store.run("a").create()
    store.run("a").events.write_bytes(b"")
    index.rebuild([store.run("a")])
    assert count(store, "runs") == 0


def test_tables_of_another_version_are_refused(store: Store, index: Index) -> None:
    index.open()
    connection = sqlite3.connect(database(store))
    connection.execute("UPDATE tuner_version SET version = 999")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnusable, match="version 999") as caught:
        Index(store.url).open()
    assert "pip install -U" in caught.value.next


def test_events_that_do_not_start_with_the_run_are_a_mistake(store: Store, index: Index) -> None:
    with pytest.raises(ValueError, match="not RunStarted"):
        index.record(run_of(store, "a", trial(0))[1:])


@pytest.mark.parametrize("version", range(1, SCHEMA + 1))
def test_the_stored_database_of_every_version_answers_and_takes_more(tmp_path: Path, version: int) -> None:
    shutil.copy(ASSETS / f"index-v{version}.db", tmp_path / "tuner.db")
    index = Index(f"sqlite:///{tmp_path}/tuner.db")
    (known,) = index.best_for(PROGRAM, ENVIRONMENT.key)
    assert (known.config, known.run, known.estimate.gain) == (FAST, "nbody-3f9a1c", 0.05)
    later = RunFolder(path=tmp_path / "later")
    assert (
        index.record(write_log(later.events, [started("b"), probed(), baselined(), trial(0), confirmed(EMPTY)])) == ""
    )
    assert {FAST, EMPTY} == {k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)}
    index.close()


def schema(path: Path) -> dict[str, list[tuple[str, str, int]]]:
    """Every table of ours with its columns (name, type, whether it may be empty), and every index."""
    connection = sqlite3.connect(path)
    try:
        names = connection.execute("SELECT name, type FROM sqlite_master WHERE name LIKE 'tuner%'").fetchall()
        return {
            name: sorted(
                (row[1], row[2], row[3]) if kind == "table" else (row[2], "", 0)
                for row in connection.execute(f"PRAGMA {kind}_info({name})")
            )
            for name, kind in names
        }
    finally:
        connection.close()


@pytest.mark.parametrize("version", range(1, SCHEMA))
def test_a_migrated_database_has_the_tables_of_a_new_one(tmp_path: Path, version: int) -> None:
    shutil.copy(ASSETS / f"index-v{version}.db", tmp_path / "old.db")
    for name in ("old", "new"):
        index = Index(f"sqlite:///{tmp_path}/{name}.db")
        index.open()
        index.close()
    assert schema(tmp_path / "old.db") == schema(tmp_path / "new.db")


def test_what_an_older_version_did_not_keep_is_taken_from_the_logs(store: Store) -> None:
    shutil.copy(ASSETS / "index-v1.db", database(store))
    events = read(ASSETS / "events-v1.jsonl")
    folder = store.run("nbody-3f9a1c")
    folder.create()
    shutil.copy(ASSETS / "events-v1.jsonl", folder.events)
    assert count(store, "runs") == 1
    index = Index(store.url, runs=store.runs)
    index.open()
    connection = sqlite3.connect(database(store))
    rows = connection.execute("SELECT digest, name, verdict, log FROM tuner_runs ORDER BY log").fetchall()
    connection.close()
    assert rows[-1] == ("ab12", "nbody.py", "faster", str(folder.events))
    assert count(store, "bundles") == 1
    assert index.record(events) == ""
    assert count(store, "bundles") == 1
    index.close()


def test_two_that_migrate_at_once_do_it_once(tmp_path: Path) -> None:
    shutil.copy(ASSETS / "index-v1.db", tmp_path / "tuner.db")
    code = f"from tuner.store.index import Index; Index('sqlite:///{tmp_path}/tuner.db').open()"
    started_ = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[1] for process in started_] == ["", "", ""]
    index = Index(f"sqlite:///{tmp_path}/tuner.db")
    assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == [FAST]
    index.close()


def test_two_processes_that_write_at_once_lose_nothing(store: Store) -> None:
    """Each records ten runs, event by event, into one database."""
    for name in ("a", "b"):
        for number in range(10):
            run_of(store, f"{name}{number}", *[trial(i) for i in range(5)], confirmed(), sealed())
    code = """
import sys
from pathlib import Path
from tuner.store.index import Index
from tuner.store.log import read

url, runs, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
for number in range(10):
    index = Index(url)
    events = read(runs / f"{name}{number}" / "events.jsonl")
    for end in range(2, len(events) + 1):
        if trouble := index.record(events[:end], limit_s=30.0):
            raise SystemExit(trouble)
    index.close()
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, store.url, str(store.runs), name], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for name in ("a", "b")
    ]
    assert [process.communicate(timeout=120)[1] for process in writers] == ["", ""]
    assert {t: count(store, t) for t in ("runs", "trials", "verdicts", "bundles")} == {
        "runs": 20,
        "trials": 100,
        "verdicts": 20,
        "bundles": 20,
    }


def test_a_finalist_that_was_never_timed_keeps_no_verdict_out(store: Store, index: Index) -> None:
    event = confirmed(FAST)
    assert isinstance(event.record, ConfirmRecord)
    lost = msgspec.structs.replace(event.record.finalists[0], config=EMPTY, control_ms=math.nan, best_ms=math.nan)
    record = msgspec.structs.replace(event.record, finalists=(*event.record.finalists, lost))
    assert index.record(run_of(store, "a", msgspec.structs.replace(event, record=record))) == ""
    assert count(store, "verdicts") == 2
