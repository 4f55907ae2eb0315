"""`tune store`: what is shown of a store, and its upkeep."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import click
import optuna
import pytest
from command_line import Tune
from handoff_samples import DEFAULT, keep_run, seal

from tuner.cli.store import command
from tuner.store import RunFolder, read
from tuner.store.listing import KINDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(folder: Path) -> RunFolder:
    Path("nbody.py").write_text("def build(): ...\n")
    made = keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd")
    seal(made)
    return made


def rows(folder: Path, table: str, *, store: str = ".tuner") -> int:
    connection = sqlite3.connect(folder / store / "tuner.db")
    try:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


def test_every_sub_command_explains_itself_and_its_options(tune: Tune) -> None:
    assert {*command.commands} == {"ls", "show", "rebuild", "merge", "gc", "export", "import"}
    listed = tune("store", "--help").out
    readme = (ROOT / "README.md").read_text()
    for name, sub in command.commands.items():
        got = tune("store", name, "--help")
        assert (got.code, got.err) == (0, "")
        assert sub.get_short_help_str(200) in listed
        assert f"tune store {name}" in readme
        for param in sub.params:
            assert not isinstance(param, click.Option) or param.help, (name, param.name)


def test_the_commands_kinds_are_the_stores() -> None:
    (kind,) = [p for p in command.commands["ls"].params if p.name == "kind"]
    assert isinstance(kind.type, click.Choice)
    assert tuple(kind.type.choices) == KINDS


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("runs", "nbody-ab12cd"),
        ("bundles", "nbody.py #1"),
        ("verdicts", "2x (1.9–2.1)"),
        ("environments", "cpu Made Up 9000"),
    ],
)
def test_every_kind_is_listed(tune: Tune, run: RunFolder, kind: str, said: str) -> None:
    assert tune("store", "rebuild").out == "1 run taken up from the event logs\n"
    got = tune("store", "ls", kind)
    assert (got.code, got.err) == (0, "")
    assert said in got.out
    document = json.loads(tune("store", "ls", kind, "--json").out)
    assert (document["schema"], len(document[kind])) == ("tuner/store/1", 1)
    assert tune("store", "ls", kind, "--workload", "other.py").out == ""


def test_without_a_database_the_logs_are_listed_and_nothing_is_made(tune: Tune, run: RunFolder, folder: Path) -> None:
    got = tune("store", "ls")
    assert "nbody-ab12cd" in got.out
    assert "event logs were read instead" in got.err
    assert not (folder / ".tuner" / "tuner.db").exists()
    assert tune("store", "ls", "--quiet").err == ""


def test_a_thing_is_shown_by_how_its_key_begins(tune: Tune, run: RunFolder) -> None:
    tune("store", "rebuild")
    environment = json.loads(tune("store", "ls", "environments", "--json").out)["environments"][0]["environment"]
    for name in ("nbody-ab12cd", "nbody-ab", "nbody.py", environment[:5]):
        got = tune("store", "show", name)
        assert (got.code, got.err) == (0, ""), name
        assert "nbody-ab12cd" in got.out
        assert str(run.events) in got.out  # where the raw samples are
    shown = [line.split() for line in tune("store", "show", "nbody-ab").out.splitlines()]
    assert ["gain", "2x"] in shown  # as in every other list; the document has it on the log scale
    assert ["low", "1.9x"] in shown
    (bundle,) = json.loads(tune("store", "show", "nbody-ab", "--json").out)["bundles"]
    assert (bundle["number"], bundle["gain"]) == (1, pytest.approx(math.log(2)))
    for name in ("%", "_body-ab12cd", ""):
        got = tune("store", "show", name)
        assert (got.code, got.out) == (4, "")
        assert "nothing here is called" in got.err


def test_wrong_words_get_a_suggestion(tune: Tune, run: RunFolder) -> None:
    got = tune("store", "rebiuld")
    assert (got.code, got.out) == (2, "")
    assert "did you mean rebuild?" in got.err
    assert tune("store", "ls", "bundels").code == 2
    assert tune("store", "import", "nowhere.gz").code == 2
    assert tune("store", "merge", "nowhere").code == 2
    assert tune("store", "export", "nobody").code == 2


def test_records_go_from_store_to_store_and_executables_do_not(tune: Tune, run: RunFolder, folder: Path) -> None:
    got = tune("store", "export", "--out", "all.jsonl.gz")
    assert (got.code, got.out) == (0, "")
    assert gzip.decompress(Path("all.jsonl.gz").read_bytes()) == run.events.read_bytes()
    got = tune("store", "import", "all.jsonl.gz", "--store", "other")
    assert (got.code, got.out) == (0, "1 run added, 0 brought up to date, 0 here already\n")
    taken = folder / "other" / "runs" / "nbody-ab12cd"
    assert read(taken / "events.jsonl") == read(run.events)
    assert not (taken / "bundle").exists()
    assert rows(folder, "tuner_bundles", store="other") == 1
    assert "1 here already" in tune("store", "import", "all.jsonl.gz", "--store", "other").out
    assert tune("compare", "all.jsonl.gz", str(run.path)).code == 0


def test_a_run_that_went_on_elsewhere_is_brought_up_to_date(tune: Tune, run: RunFolder, folder: Path) -> None:
    tune("store", "export", "--out", "before.gz")
    tune("store", "import", "before.gz", "--store", "other")
    seal(run, DEFAULT)
    tune("store", "export", "--out", "after.gz")
    assert "1 brought up to date" in tune("store", "import", "after.gz", "--store", "other").out
    assert "1 here already" in tune("store", "import", "before.gz", "--store", "other").out
    assert rows(folder, "tuner_bundles", store="other") == 2


@pytest.mark.parametrize("run_id", ["../../evil", "/abs", ".hidden", "a/b", ""])
def test_a_record_cannot_name_a_place(tune: Tune, run: RunFolder, folder: Path, run_id: str) -> None:
    lines = run.events.read_text().splitlines()
    first = json.loads(lines[0])
    first["run"] = run_id
    Path("evil.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    before = {p for p in folder.rglob("*") if "other" not in p.parts}
    assert tune("store", "import", "evil.jsonl", "--store", "other").code == 0
    assert {p for p in folder.rglob("*") if "other" not in p.parts} == before
    (taken,) = (folder / "other" / "runs").iterdir()
    assert taken.name.startswith("run-")
    assert tune("store", "ls", "--store", "other").err == ""  # the database knows it, under the folder's name


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"junk\n", "not an event"),
        (gzip.compress(b"junk\n")[:-9], "not an event"),
        (b"\x1f\x8bjunk", "no records"),
    ],
    ids=["empty", "junk", "cut gzip", "no gzip"],
)
def test_what_is_no_records_is_refused_whole(tune: Tune, run: RunFolder, folder: Path, data: bytes, said: str) -> None:
    Path("x").write_bytes(data)
    got = tune("store", "import", "x", "--store", "other")
    assert (got.code, got.out) == (2, "")
    assert said in got.err
    assert not any((folder / "other" / "runs").iterdir())


def test_a_line_out_of_order_keeps_everything_out(tune: Tune, run: RunFolder, folder: Path) -> None:
    lines = run.events.read_bytes().splitlines(keepends=True)
    Path("x").write_bytes(b"".join([*lines, lines[0], lines[2]]))
    got = tune("store", "import", "x", "--store", "other")
    assert (got.code, got.out) == (2, "")
    assert f"where: x:{len(lines) + 2}" in got.err
    assert not any((folder / "other" / "runs").iterdir())


def test_merging_brings_bundles_too_and_two_runs_of_one_name_stay_apart(
    tune: Tune, run: RunFolder, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "entry").write_bytes(b"compiled")
    second = keep_run(folder / "other", Path("nbody.py"), "nbody-ab12cd")
    seal(second, cache=tmp_path / "c")
    got = tune("store", "merge", "other")
    assert (got.code, got.err) == (0, "")
    assert got.out == "1 run added, 0 brought up to date, 0 here already; 1 bundle copied\n"
    (taken,) = (folder / ".tuner" / "runs").glob("nbody-ab12cd@*")
    assert (taken / "bundle" / "0001" / "jax_cache" / "entry").read_bytes() == b"compiled"
    assert tune("store", "merge", "other").out == "0 runs added, 0 brought up to date, 1 here already\n"
    assert rows(folder, "tuner_runs") == 2
    assert tune("store", "ls").err == ""
    assert tune("store", "merge", ".tuner").code == 2
    assert tune("export", taken.name, "--format", "json").code == 0


def test_garbage_is_shown_first_and_records_of_results_stay(tune: Tune, run: RunFolder, folder: Path) -> None:
    seal(run, DEFAULT)
    tune("store", "rebuild")
    (run.scratch / "reference.bin").write_bytes(bytes(2_000_000))
    (folder / ".tuner" / "tuner.db.corrupt-1").write_bytes(b"x")
    unfinished = keep_run(folder / ".tuner", Path("nbody.py"), "nbody-half")
    got = tune("store", "gc", "--keep", "1", "--unfinished")
    assert {line.split("  ")[0] for line in got.out.splitlines()} == {
        str(run.scratch),
        str(folder / ".tuner" / "tuner.db.corrupt-1"),
        str(unfinished.path),
        str(run.bundle / "0001"),
    }
    assert got.err == "to be deleted with --delete: 2.0 MB\n"
    assert unfinished.path.exists()
    assert tune("store", "gc", "--keep", "1", "--unfinished", "--delete").err == "deleted: 2.0 MB\n"
    assert not unfinished.path.exists()
    assert sorted(p.name for p in run.bundle.iterdir()) == ["0002"]
    assert run.scratch.is_dir()
    assert run.events.is_file()
    assert tune("store", "gc").err == "nothing to delete\n"


def test_a_run_that_is_being_written_is_no_garbage(tune: Tune, folder: Path) -> None:
    from tuner.store import EventLog

    Path("w.py").write_text("")
    run = keep_run(folder / ".tuner", Path("w.py"), "w-1")
    with EventLog(run.events):
        assert tune("store", "gc", "--unfinished").err == "nothing to delete\n"


# -- what goes wrong with databases, for real --------------------------------------------------------------------------


def test_a_damaged_database_is_kept_aside_and_index_and_studies_are_made_anew(
    tune: Tune, run: RunFolder, folder: Path
) -> None:
    tune("store", "rebuild")
    database = folder / ".tuner" / "tuner.db"
    before = optuna.get_all_study_names(f"sqlite:///{database}")
    data = bytearray(database.read_bytes())
    data[100:8192] = b"\xff" * (8192 - 100)
    database.write_bytes(bytes(data))
    got = tune("store", "rebuild")
    assert got.code == 0
    assert "kept as tuner.db.corrupt-1" in got.err
    assert (folder / ".tuner" / "tuner.db.corrupt-1").read_bytes() == bytes(data)
    assert rows(folder, "tuner_bundles") == 1
    assert optuna.get_all_study_names(f"sqlite:///{database}") == before == ["nbody-ab12cd"]


def test_a_locked_database_is_waited_for(tune: Tune, run: RunFolder, folder: Path) -> None:
    """Another process holds it for a second."""
    tune("store", "rebuild")
    hold = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); c.execute('DELETE FROM tuner_trials'); print('held', flush=True); "
        "sys.stdin.read(); c.rollback()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(folder / ".tuner" / "tuner.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        seal(run, DEFAULT)
        timer = threading.Timer(1.0, holder.stdin.close)
        timer.start()
        got = tune("store", "rebuild")
        timer.join()
    assert (got.code, got.err) == (0, "")
    assert rows(folder, "tuner_bundles") == 2


def test_sqlite_on_a_network_filesystem_is_refused_with_another_way(
    tune: Tune, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the kernel's word on what is mounted where is made up: it needs a server to be real."""
    monkeypatch.setattr("tuner.store.folder.network_filesystem", lambda path: "nfs4")
    got = tune("store", "ls", "--store", "sqlite:////shared/tuner.db")
    assert (got.code, got.out) == (2, "")
    assert "SQLite gets corrupted on a network filesystem (nfs4)" in got.err
    assert "postgresql://" in got.err
