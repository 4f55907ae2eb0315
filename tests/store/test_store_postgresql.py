"""The index, the studies and the look-up on a real PostgreSQL."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import postgresql_server
import pytest
import sqlalchemy as sa
from store_samples import (
    ASSETS,
    EMPTY,
    ENVIRONMENT,
    FAST,
    PROGRAM,
    SKETCH,
    baselined,
    compiled,
    confirmed,
    probed,
    sealed,
    started,
    trial,
    whole_run,
    write_log,
)

from tuner.errors import StoreError
from tuner.store import Store, open_store
from tuner.store.events import AnyEvent, RunStarted
from tuner.store.exchange import export_runs, import_records
from tuner.store.index import Index
from tuner.store.listing import KINDS, listed, matching
from tuner.store.log import read
from tuner.store.lookup import look_up, question_of
from tuner.store.near import neighbours
from tuner.store.reader import reading
from tuner.store.study import StudyMirror, load_study
from tuner.store.tables import SCHEMA
from tuner.store.upkeep import rebuild

_MISSING = [name for name in ("pgserver", "psycopg") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    folder = postgresql_server.binaries()
    if folder is None:
        pytest.skip("the installed pgserver brings no PostgreSQL for this system")
    try:
        with postgresql_server.server(folder) as url:
            yield url
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no PostgreSQL can be started here: {error}")


@pytest.fixture
def store(server: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in an empty database of this test's own, its runs in ./.tuner of a folder of its own."""
    name = f"t{zlib.crc32(request.node.name.encode()):x}"
    engine = sa.create_engine(server.format("postgres").replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    monkeypatch.chdir(tmp_path)
    return open_store(server.format(name))


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    index = Index(store.url, runs=store.runs)
    yield index
    index.close()


def count(index: Index, table: str) -> int:
    (row,) = index.select(sa.text(f"SELECT COUNT(*) AS n FROM tuner_{table}"))
    return int(row["n"])


def studied(store: Store, first: AnyEvent) -> int:
    """How many trials the study of the run that began with `first` has."""
    assert isinstance(first, RunStarted)
    study = load_study(store.url, first)
    try:
        return len(study.trials)
    finally:
        study._storage.remove_session()  # else its connection stays open until it is collected


def test_a_whole_run_with_awkward_values_is_recorded_once(store: Store, index: Index) -> None:
    events = write_log(store.run("nbody-3f9a1c").events)
    for _ in range(2):
        assert index.record(events) == ""
    rows = {t: count(index, t) for t in ("runs", "trials", "verdicts", "bundles", "cache_keys", "sketches")}
    assert rows == {"runs": 1, "trials": 4, "verdicts": 1, "bundles": 1, "cache_keys": 1, "sketches": 1}
    (known,) = index.best_for(PROGRAM, ENVIRONMENT.key)
    assert (known.config, known.run) == (FAST, "nbody-3f9a1c")
    assert index.pair_spread(PROGRAM, ENVIRONMENT.key) is not None


def test_near_programs_are_found(store: Store, index: Index) -> None:
    middle = [probed(), compiled(), baselined(), confirmed()]
    assert index.record(write_log(store.run("a").events, [started("a"), *middle])) == ""
    (near,) = neighbours(index, "77" * 16, SKETCH, ENVIRONMENT)
    assert (near.run, near.configs) == ("a", (FAST,))


def test_two_processes_that_write_at_once_lose_nothing(store: Store, index: Index) -> None:
    for name in ("a", "b"):
        for number in range(5):
            events = [started(f"{name}{number}"), probed(), compiled(), baselined(), trial(0), confirmed(), sealed()]
            write_log(store.run(f"{name}{number}").events, events)
    code = """
import sys
from pathlib import Path
from tuner.store.index import Index
from tuner.store.log import read
from tuner.store.study import StudyMirror

url, runs, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
index, study = Index(url), StudyMirror(url)
for number in range(5):
    events = read(runs / f"{name}{number}" / "events.jsonl")
    for end in range(2, len(events) + 1):
        if trouble := index.record(events[:end], limit_s=30.0) or study.record(events[:end], limit_s=30.0):
            raise SystemExit(trouble)
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, store.url, str(store.runs), name],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    assert [process.communicate(timeout=120)[1] for process in writers] == ["", ""]
    assert {t: count(index, t) for t in ("runs", "trials", "verdicts", "bundles")} == dict.fromkeys(
        ("runs", "trials", "verdicts", "bundles"), 10
    )
    assert studied(store, read(store.run("a3").events)[0]) == 1


@pytest.mark.parametrize("version", range(1, SCHEMA))
def test_tables_of_an_older_version_are_migrated_by_one_of_two(store: Store, version: int) -> None:
    old = sa.create_engine(f"sqlite:///{ASSETS}/index-v{version}.db")
    engine = sa.create_engine(store.url)
    with old.connect() as source, engine.begin() as target:
        schema = source.execute(sa.text("SELECT sql FROM sqlite_master WHERE sql LIKE '%tuner_%' ORDER BY type DESC"))
        for (statement,) in schema.all():
            # The same text makes the tables of that version there, but for one type's name.
            target.execute(sa.text(statement.replace("FLOAT", "DOUBLE PRECISION")))
        for table in sa.inspect(source).get_table_names():
            rows = [dict(row) for row in source.execute(sa.text(f"SELECT * FROM {table}")).mappings()]
            kinds = {c["name"]: str(c["type"]) for c in sa.inspect(target).get_columns(table)}
            for row in rows:
                values = {n: bool(v) if kinds[n] == "BOOLEAN" and v is not None else v for n, v in row.items()}
                names = ", ".join(values)
                target.execute(
                    sa.text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(':' + n for n in values)})"), values
                )
    old.dispose()
    engine.dispose()
    failures: list[BaseException] = []

    def migrate() -> None:
        index = Index(store.url)
        try:
            index.open()
            assert [k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == [FAST]
        except BaseException as error:
            failures.append(error)
        finally:
            index.close()

    both = [threading.Thread(target=migrate) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert failures == []
    index = Index(store.url)
    assert [row["version"] for row in index.select(sa.text("SELECT version FROM tuner_version"))] == [SCHEMA]
    later = write_log(
        store.run("b").events, [started("b"), probed(), compiled(), baselined(), confirmed(EMPTY), sealed()]
    )
    assert index.record(later) == ""
    assert {FAST, EMPTY} == {k.config for k in index.best_for(PROGRAM, ENVIRONMENT.key)}
    assert count(index, "sketches") == 1
    index.close()


def test_rebuilding_makes_rows_and_studies_anew(store: Store, index: Index) -> None:
    events = write_log(store.run("nbody-3f9a1c").events)
    index.open()
    with index._engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM tuner_verdicts"))
    done = rebuild(store)
    assert (done.runs, done.notices) == (1, ())
    assert count(index, "verdicts") == 1
    assert studied(store, events[0]) == 4


def test_records_go_from_one_store_to_another(store: Store, index: Index, tmp_path: Path) -> None:
    source = open_store(tmp_path / "other")
    write_log(source.run("nbody-3f9a1c").events)
    taken = import_records(b"".join(export_runs(source.run_folders())), store, where="records.jsonl")
    assert taken.added == ("nbody-3f9a1c",)
    assert [k.run for k in index.best_for(PROGRAM, ENVIRONMENT.key)] == ["nbody-3f9a1c"]


def test_best_answers_from_it(store: Store, index: Index, tmp_path: Path) -> None:
    workload = tmp_path / "nbody.py"
    workload.write_text("def build():\n    raise RuntimeError('never executed')\n")
    assert index.record(write_log(store.run("nbody-3f9a1c").events, whole_run())) == ""
    found = look_up(store, question_of(workload), seen=ENVIRONMENT.identity)
    assert found.answer is not None
    assert (found.answer.by, found.answer.run, found.answer.settings) == ("name", "nbody-3f9a1c", FAST.as_dict())
    command = [sys.executable, "-m", "tuner", "best", "nbody.py", "--store", store.url, "--json"]
    done = subprocess.run(
        [*command, "--for", "jax=0.10.2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"] == FAST.as_dict()


def test_everything_in_it_can_be_listed_and_named(store: Store, index: Index) -> None:
    assert index.record(write_log(store.run("nbody-3f9a1c").events, whole_run())) == ""
    with reading(store) as reader:
        assert {kind: len(listed(reader, kind)) for kind in KINDS} == dict.fromkeys(KINDS, 1)
        assert len(listed(reader, "environments", workload="nbody.py")) == 1
        assert matching(reader, "nbody-3f")["runs"][0]["run"] == "nbody-3f9a1c"
        assert matching(reader, "no%such") == {}


def test_a_server_that_is_away_costs_a_notice_in_a_run_and_an_error_in_a_look_up(store: Store, tmp_path: Path) -> None:
    gone = store.url.partition("?")[0] + "?host=/nowhere"
    events = write_log(store.run("a").events, [started("a"), probed(), baselined(), confirmed()])
    index = Index(gone)
    assert "the index wasn't updated" in index.record(events, limit_s=0.1)
    index.close()
    assert "the Optuna study wasn't updated" in StudyMirror(gone).record(events, limit_s=0.1)
    index = Index(gone)
    with pytest.raises(StoreError, match="can't be used"):
        index.open(limit_s=0.1)
