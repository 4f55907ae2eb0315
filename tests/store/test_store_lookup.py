"""What is known to be best for a workload: by alias, by program, by name, and going back."""

from __future__ import annotations

import os
import shutil
import sqlite3
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
    write_log,
)

from tuner.knobs.config import Config
from tuner.machine import Environment
from tuner.measure.types import Verdict
from tuner.store.events import RunFinished, StageFinished
from tuner.store.folder import Store, open_store
from tuner.store.index import Index
from tuner.store.lines import encode
from tuner.store.listing import listed
from tuner.store.log import read
from tuner.store.lookup import Found, Question, look_up
from tuner.store.reader import reading
from tuner.store.records import ProbeRecord, SealRecord

pytestmark = pytest.mark.slow

HERE = {"cpu": "Made Up 9000"}


@pytest.fixture(params=["database", "logs"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    """Answers must not depend on whether there is a database."""
    made = open_store(tmp_path / "s")
    return msgspec.structs.replace(made, notices=(request.param,))


def keep(
    store: Store,
    run: str,
    number: int,
    *,
    digest: str = "ab12",
    at: float = 0.0,
    config: Config = FAST,
    verdict: Verdict = Verdict.FASTER,
    cpu: str = "Made Up 9000",
    program: str = PROGRAM,
    finished: bool = True,
    **options: str,
) -> None:
    """A run of nbody.py, `at` seconds after the first."""
    first = started(run)
    first = msgspec.structs.replace(first, identity={"workload": digest}, options={**first.options, **options})
    probe = probed()
    assert isinstance(probe.record, ProbeRecord)
    place = Environment(identity={**ENVIRONMENT.identity, "cpu": cpu}, context=ENVIRONMENT.context)
    probe = msgspec.structs.replace(probe, record=msgspec.structs.replace(probe.record, environment=place))
    end = [confirmed(config, verdict), sealed(number), RunFinished(exit_code=0)] if finished else []
    events = write_log(store.run(run).events, [first, probe, baselined(program), *end])
    later = [msgspec.structs.replace(event, time=event.time + at) for event in events]
    store.run(run).events.write_bytes(b"".join(map(encode, later)))
    if finished:
        store.run(run).bundle.joinpath(f"{number:04d}").mkdir(parents=True)


def ask(store: Store, *, seen: dict[str, str] | None = None, **question: object) -> Found:
    if store.notices == ("database",):
        index = Index(store.url, runs=store.runs)
        index.open()
        index.close()
    asked = Question(**{"digest": "ab12", "name": "nbody.py", **question})  # type: ignore[arg-type]
    found = look_up(store, asked, seen=HERE if seen is None else seen)
    assert bool(found.notice) == (store.notices == ("logs",) and bool(store.run_folders()))
    return found


def test_nothing_is_known_and_nothing_is_made(tmp_path: Path) -> None:
    store = Store(root=tmp_path / "none", url=f"sqlite:///{tmp_path}/none/tuner.db")
    found = look_up(store, Question(digest="ab12", name="nbody.py"), seen=HERE)
    assert (found.answer, found.unfinished, found.notice) == (None, (), "")
    assert list(tmp_path.iterdir()) == []


def test_the_newest_of_the_file_as_it_is_answers_by_alias(store: Store) -> None:
    keep(store, "nbody-1", 1)
    keep(store, "nbody-2", 2, at=100, config=EMPTY)
    keep(store, "nbody-3", 3, at=200, digest="edited")
    answer = ask(store).answer
    assert answer is not None
    assert (answer.run, answer.number, answer.by, answer.settings) == ("nbody-2", 2, "alias", EMPTY.as_dict())
    assert answer.bundle == store.run("nbody-2").bundle / "0002"
    assert answer.estimate is not None
    assert (answer.estimate.gain, answer.verdict, answer.control_ms) == (0.05, Verdict.FASTER, 12.5)
    assert (answer.environment, answer.unlike, answer.program) == (ENVIRONMENT, {}, PROGRAM)
    assert answer.variables == {"XLA_FLAGS": "--xla_cpu_fast_math=true"}


def test_a_default_is_an_answer_without_settings(store: Store) -> None:
    keep(store, "nbody-1", 1, verdict=Verdict.SAME)
    answer = ask(store).answer
    assert answer is not None
    assert (answer.verdict, answer.settings, answer.estimate) == (Verdict.SAME, {}, None)


def test_an_edited_file_is_known_by_its_name_or_by_its_program(store: Store) -> None:
    keep(store, "nbody-1", 1, digest="before")
    answer = ask(store).answer
    assert answer is not None
    assert (answer.run, answer.by) == ("nbody-1", "name")
    answer = ask(store, program=PROGRAM, name="another.py").answer
    assert answer is not None
    assert (answer.run, answer.by) == ("nbody-1", "program")
    assert ask(store, program="other", name="another.py").answer is None


def test_one_that_fits_goes_before_a_newer_one_that_does_not(store: Store) -> None:
    keep(store, "nbody-1", 1, digest="edited")
    keep(store, "nbody-2", 2, at=100, cpu="Elsewhere")
    answer = ask(store).answer
    assert answer is not None
    assert (answer.run, answer.by) == ("nbody-1", "name")
    answer = ask(store, seen={"cpu": "Nowhere"}).answer
    assert answer is not None
    assert (answer.run, answer.unlike) == ("nbody-2", {"cpu": ("Elsewhere", "Nowhere")})


def test_going_back_passes_edits_and_stays_in_this_place(store: Store) -> None:
    keep(store, "nbody-1", 1, digest="edited")
    keep(store, "nbody-2", 2, at=100, cpu="Elsewhere")
    keep(store, "nbody-3", 3, at=200)
    answer = ask(store, previous=True).answer
    assert answer is not None
    assert (answer.number, answer.by) == (1, "name")
    for number, by in ((1, "name"), (3, "alias")):
        answer = ask(store, number=number).answer
        assert answer is not None
        assert (answer.number, answer.by) == (number, by)
    assert ask(store, number=4).answer is None


@pytest.mark.parametrize("verdict", [Verdict.UNCLEAR, Verdict.UNSTABLE])
def test_what_settles_nothing_takes_back_no_gain(store: Store, verdict: Verdict) -> None:
    keep(store, "a", 1, config=EMPTY)
    keep(store, "b", 2, at=10)
    keep(store, "c", 3, at=20, verdict=verdict)
    answer = ask(store).answer
    assert answer is not None
    assert (answer.number, answer.later) == (2, ("c", verdict))
    answer = ask(store, previous=True).answer
    assert answer is not None
    assert (answer.number, answer.later) == (1, None)
    answer = ask(store, number=3).answer
    assert answer is not None
    assert (answer.number, answer.verdict, answer.later) == (3, verdict, None)
    keep(store, "d", 4, at=30, verdict=Verdict.SAME)
    answer = ask(store).answer
    assert answer is not None
    assert (answer.number, answer.later) == (4, None)


def test_what_settles_nothing_takes_back_no_gain_of_another_place_that_fits_as_far_as_is_known(store: Store) -> None:
    keep(store, "a", 1)
    keep(store, "b", 2, at=10, cpu="Elsewhere", verdict=Verdict.UNCLEAR)
    answer = ask(store, seen={}).answer
    assert answer is not None
    assert (answer.run, answer.verdict) == ("a", Verdict.FASTER)


def test_there_is_nothing_before_the_first(store: Store) -> None:
    keep(store, "nbody-1", 1)
    assert ask(store, previous=True).answer is None


def test_a_run_without_a_bundle_is_unfinished(store: Store) -> None:
    keep(store, "nbody-1", 1, finished=False)
    found = ask(store)
    assert (found.answer, found.unfinished) == (None, ("nbody-1",))


def test_a_record_without_its_run_says_where_it_is_from(store: Store) -> None:
    if store.notices == ("logs",):
        pytest.skip("without database and logs nothing is known")
    keep(store, "nbody-1", 1)
    assert ask(store).answer is not None
    log = str(store.run("nbody-1").events)
    shutil.rmtree(store.run("nbody-1").path)
    answer = ask(store).answer
    assert answer is not None
    assert (answer.folder, answer.bundle, answer.log) == (None, None, log)
    assert answer.whereabouts == f"its bundle isn't here: it was sealed on {answer.host}, see {log}"


def test_a_bundle_that_was_deleted_is_told_from_one_that_lies_elsewhere(store: Store) -> None:
    keep(store, "nbody-1", 1)
    shutil.rmtree(store.run("nbody-1").bundle)
    answer = ask(store).answer
    assert answer is not None
    assert answer.bundle is None
    assert f"isn't in {store.run('nbody-1').path}: it was deleted" in answer.whereabouts


def test_a_store_that_was_moved_still_has_its_bundles(store: Store, tmp_path: Path) -> None:
    keep(store, "nbody-1", 1)
    ask(store)
    shutil.move(store.root, tmp_path / "moved")
    moved = msgspec.structs.replace(store, root=tmp_path / "moved", url=f"sqlite:///{tmp_path}/moved/tuner.db")
    answer = ask(moved).answer
    assert answer is not None
    assert answer.bundle == tmp_path / "moved" / "runs" / "nbody-1" / "bundle" / "0001"


@pytest.mark.parametrize("trouble", ["damaged", "older"])
def test_looking_passes_over_a_database_that_it_cannot_read_and_leaves_it(tmp_path: Path, trouble: str) -> None:
    store = open_store(tmp_path / "s")
    keep(store, "nbody-1", 1)
    database = tmp_path / "s" / "tuner.db"
    if trouble == "damaged":
        database.write_bytes(b"nonsense" * 1000)
    else:
        shutil.copy(ASSETS / "index-v1.db", database)
    before = database.read_bytes()
    found = look_up(store, Question(digest="ab12", name="nbody.py"), seen=HERE)
    assert found.answer is not None
    assert "event logs were read instead" in found.notice
    assert database.read_bytes() == before
    assert sorted(os.listdir(tmp_path / "s")) == [".gitignore", "runs", "tuner.db"]


def test_damage_that_a_later_query_meets_is_passed_over_as_well(tmp_path: Path) -> None:
    store = msgspec.structs.replace(open_store(tmp_path / "s"), notices=("database",))
    keep(store, "nbody-1", 1)
    assert ask(store).answer is not None
    database = tmp_path / "s" / "tuner.db"
    data = bytearray(database.read_bytes())
    connection = sqlite3.connect(database)
    page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tuner_configs'").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    data[size * (page - 1) : size * page] = b"\xff" * size
    database.write_bytes(bytes(data))
    found = look_up(store, Question(digest="ab12", name="nbody.py"), seen=HERE)
    assert found.answer is not None
    assert found.answer.settings == dict(FAST.settings)
    assert "event logs were read instead" in found.notice


@pytest.mark.parametrize("known", ["nothing", "its beginning"])
def test_a_run_that_the_database_has_missed_is_found(tmp_path: Path, known: str) -> None:
    """It was locked when that run ended, or it is this machine's own and the run was made on another one."""
    store = msgspec.structs.replace(open_store(tmp_path / "s"), notices=("database",))
    keep(store, "nbody-1", 1)
    assert ask(store).notice == ""
    keep(store, "other-1", 1)  # of another workload: it costs this look-up nothing
    assert look_up(store, Question(digest="ab12", name="nbody.py"), seen=HERE).notice == ""
    keep(store, "nbody-2", 2, at=100)
    if known == "its beginning":
        index = Index(store.url)
        index.record(read(store.run("nbody-2").events)[:3])
        index.close()
    found = look_up(store, Question(digest="ab12", name="nbody.py"), seen=HERE)
    assert found.answer is not None
    assert found.answer.number == 2
    assert "it lacks run nbody-2; " in found.notice
    assert "tune store rebuild" in found.notice
    with reading(store) as reader:
        assert len(listed(reader, "bundles")) == 3


def test_a_writer_does_not_hold_up_a_look(tmp_path: Path) -> None:
    store = msgspec.structs.replace(open_store(tmp_path / "s"), notices=("database",))
    keep(store, "nbody-1", 1)
    assert ask(store).answer is not None
    holder = sqlite3.connect(tmp_path / "s" / "tuner.db")
    holder.execute("BEGIN IMMEDIATE")
    holder.execute("DELETE FROM tuner_runs")
    found = look_up(store, Question(digest="ab12", name="nbody.py"), seen=HERE)
    holder.close()
    assert found.answer is not None


def test_the_file_as_it_stands_goes_before_what_it_is_with_other_parameters(store: Store) -> None:
    keep(store, "a", 1, form="")
    keep(store, "b", 2, at=10, hold="bodies=768", form="bodies=768")
    keep(store, "c", 3, at=20, hold="xla_x=1", form="")
    keep(store, "d", 4, at=30, argv="--fast", form="-- --fast")
    answer = ask(store, seen=HERE).answer
    assert answer is not None
    assert (answer.number, answer.form) == (3, "")
    answer = ask(store, seen=HERE, knobs={"bodies": "768"}).answer
    assert answer is not None
    assert (answer.number, answer.form, answer.held, answer.argv) == (2, "bodies=768", {"bodies": "768"}, "")
    found = ask(store, seen=HERE, knobs={"bodies": "512"})
    assert (found.answer, found.forms) == (None, ("", "-- --fast", "bodies=768"))
    answer = ask(store, seen=HERE, number=4).answer
    assert answer is not None
    assert (answer.number, answer.argv) == (4, "--fast")
    answer = ask(store, seen=HERE, previous=True).answer
    assert answer is not None
    assert answer.number == 1


def test_a_run_that_is_sealed_anew_has_the_newest_bundle_again(store: Store) -> None:
    keep(store, "a", 1)
    keep(store, "b", 2, at=10)
    log = store.run("a").events
    *_, seal, end = read(log)
    assert isinstance(seal, StageFinished)
    assert isinstance(seal.record, SealRecord)
    record = msgspec.structs.replace(seal.record, bundle="bundle/0003", number=3)
    again = msgspec.structs.replace(seal, seq=end.seq + 1, time=end.time + 20, record=record)
    log.write_bytes(log.read_bytes() + encode(again))
    store.run("a").bundle.joinpath("0003").mkdir()
    newest, before = (ask(store, seen=HERE, previous=previous).answer for previous in (False, True))
    assert newest is not None
    assert before is not None
    assert [(answer.run, answer.number) for answer in (newest, before)] == [("a", 3), ("b", 2)]


def test_without_one_of_the_file_as_it_stands_the_newest_other_one_is_told(store: Store) -> None:
    keep(store, "a", 1, hold="bodies=768", form="bodies=768")
    keep(store, "b", 2, at=10, hold="bodies=512")  # from before forms were told
    answer = ask(store, seen=HERE).answer
    assert answer is not None
    assert (answer.number, answer.form) == (2, "bodies=512")
