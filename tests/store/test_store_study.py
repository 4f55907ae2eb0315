from __future__ import annotations

import datetime
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest
import sqlalchemy as sa
from optuna.distributions import CategoricalDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from store_samples import EMPTY, FAST, probed, started, stored, trial, whole_run

from tuner.store.events import AnyEvent
from tuner.store.optuna_tables import add_trials, count_trials
from tuner.store.study import StudyMirror

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return stored()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, events: list[AnyEvent]) -> str:
    """A database, new before, with all trials mirrored; for reading only."""
    url = f"sqlite:///{tmp_path_factory.mktemp('full')}/tuner.db"
    assert mirror(url, events) == ""
    return url


@pytest.fixture(scope="module")
def empty_database(full: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with Optuna's tables and nothing in them: making these takes half a second."""
    path = tmp_path_factory.mktemp("empty") / "tuner.db"
    shutil.copy(full.removeprefix("sqlite:///"), path)
    storage = opened(f"sqlite:///{path}")
    storage.delete_study(storage.get_study_id_from_name("nbody-3f9a1c"))
    storage.remove_session()
    storage.engine.dispose()
    return path


@pytest.fixture
def url(tmp_path: Path, empty_database: Path) -> str:
    shutil.copy(empty_database, tmp_path / "tuner.db")
    return f"sqlite:///{tmp_path}/tuner.db"


def mirror(url: str, events: list[AnyEvent], *, limit_s: float = 2.0) -> str:
    """One call by a process of its own."""
    study = StudyMirror(url)
    try:
        return study.record(events, limit_s=limit_s)
    finally:
        study.close()


def opened(url: str) -> optuna.storages.RDBStorage:
    """Optuna's storage without its checks, which load all of its migrations."""
    return optuna.storages.RDBStorage(url, skip_compatibility_check=True, skip_table_creation=True)


def trials_of(url: str, name: str = "nbody-3f9a1c") -> list[FrozenTrial]:
    storage = opened(url)
    try:
        return storage.get_all_trials(storage.get_study_id_from_name(name))
    finally:
        storage.remove_session()
        storage.engine.dispose()


def rows_of(url: str, study: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that a study's trials have, by table, without the ids that tell one study from another."""
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    of_it = "FROM trials t JOIN studies s USING (study_id) {} WHERE s.study_name = ? ORDER BY 1, 2"
    columns = {
        "": "t.number, t.state, t.datetime_start, t.datetime_complete",
        "trial_values": "t.number, x.objective, x.value, x.value_type",
        "trial_params": "t.number, x.param_name, x.param_value, x.distribution_json",
        "trial_user_attributes": "t.number, x.key, x.value_json",
    }
    found = {
        table: database.execute(
            f"SELECT {names} {of_it.format(f'JOIN {table} x USING (trial_id)' if table else '')}", (study,)
        ).fetchall()
        for table, names in columns.items()
    }
    database.close()
    return found


def many(knobs: int) -> AnyEvent:
    """The end of a probe that left so many."""
    event = probed()
    one = event.record.knobs[0]
    record = msgspec.structs.replace(
        event.record, knobs=tuple(msgspec.structs.replace(one, name=f"xla_{i}") for i in range(knobs))
    )
    return msgspec.structs.replace(event, record=record)


@contextmanager
def heard(statements: list[str]) -> Iterator[None]:
    """Whatever any database is asked while the block runs; many rows of one table are one statement."""

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", hear)


def test_trials_bear_the_knobs_names_values_and_times(full: str) -> None:
    first = trials_of(full)[0]
    assert first.state == TrialState.COMPLETE
    assert first.value == -0.05
    assert first.params == {"xla_cpu_fast_math": "true", "xla_disable_passes": "unset"}
    assert {n: getattr(d, "choices", ()) for n, d in first.distributions.items()} == {
        "xla_cpu_fast_math": ("unset", "true", "false"),
        "xla_disable_passes": ("unset", "", "all"),
    }
    assert {"trial": 0, "stage": "screen", "session": "home", "fingerprint": "f" * 8, "label": "fast math"}.items() <= (
        first.user_attrs.items()
    )
    assert pytest.approx([-0.052, -0.048]) == first.user_attrs["interval"]
    assert datetime.datetime.fromtimestamp(10**9 + 8) == first.datetime_complete


def test_failures_have_no_number_and_say_who_is_to_blame(full: str) -> None:
    _, crashed, broken, _ = trials_of(full)
    assert (crashed.state, crashed.value) == (TrialState.PRUNED, None)
    assert (crashed.user_attrs["failure"], crashed.user_attrs["message"]) == ("crash", "Check failed: n > 0")
    assert (broken.state, broken.value) == (TrialState.FAIL, None)
    assert broken.user_attrs["failure"] == "protocol"


def test_values_outside_the_space_are_shown_and_are_no_parameters(full: str) -> None:
    last = trials_of(full)[3]
    assert last.params == {"xla_cpu_fast_math": "true"}
    assert "xla_disable_passes=elsewhere" in last.user_attrs["settings"]
    assert "interval" not in last.user_attrs  # infinite


def test_an_empty_value_is_a_choice_of_its_own(url: str, events: list[AnyEvent]) -> None:
    mirror(url, stored([*events[:3], trial(0, EMPTY, 0.1)]))
    assert trials_of(url)[0].params["xla_disable_passes"] == ""


def test_a_value_that_is_no_number_never_becomes_one(url: str, events: list[AnyEvent]) -> None:
    values = (float("nan"), float("inf"), float("-inf"), None)
    mirror(url, stored([*events[:3], *(trial(n, FAST, value) for n, value in enumerate(values))]))
    assert [(t.state, t.value, t.user_attrs["failure"]) for t in trials_of(url)] == [
        (TrialState.FAIL, None, "no_value")
    ] * 4


def test_mirroring_in_batches_and_again_adds_each_trial_once(url: str, events: list[AnyEvent]) -> None:
    study = StudyMirror(url)
    for end in (1, 10, 10, 12):
        assert study.record(events[:end]) == ""
    study.close()
    for end in (12, len(events)):  # and so for a process that continues the run
        assert mirror(url, events[:end]) == ""
    assert [t.user_attrs["trial"] for t in trials_of(url)] == [0, 1, 2, 3]


@pytest.mark.parametrize("knobs", [2, 70])
def test_what_a_batch_asks_of_the_database_grows_by_one_a_trial_however_many_knobs(url: str, knobs: int) -> None:
    """A run waits for it, and so does the device."""
    events = stored([started(), many(knobs), *(trial(n, FAST, 0.1) for n in range(40))])
    study = StudyMirror(url)
    asked: list[str] = []
    with heard(asked):
        counts = []
        for end in (3, 5, 42):
            asked.clear()
            assert study.record(events[:end]) == ""
            counts.append(len(asked))
    study.close()
    assert counts[1] < 20  # two trials
    assert counts[2] - counts[1] <= 35  # thirty-seven


def test_a_study_with_somebody_elses_trials_in_between_is_completed(url: str, events: list[AnyEvent]) -> None:
    mirror(url, events[:10])
    storage = opened(url)
    foreign = optuna.trial.create_trial(state=TrialState.FAIL)
    storage.create_new_trial(storage.get_study_id_from_name("nbody-3f9a1c"), template_trial=foreign)
    storage.remove_session()
    storage.engine.dispose()
    mirror(url, events)
    assert [t.user_attrs.get("trial") for t in trials_of(url)] == [0, 1, None, 2, 3]


def test_trials_added_at_once_are_those_that_optunas_own_storage_would_add(url: str) -> None:
    """Row for row, in every table of trials; also behind trials that are there already."""
    choices = CategoricalDistribution(["unset", "", "1"])
    given = [
        create_trial(value=-0.25, params={"a": "", "b": "1"}, distributions={"a": choices, "b": choices}),
        create_trial(state=TrialState.PRUNED, params={"a": "unset"}, distributions={"a": choices}),
        create_trial(state=TrialState.FAIL, user_attrs={"why": "ünknown", "interval": [0.5, 1.5]}),
        create_trial(value=float("inf")),
    ]
    found = []
    for name in ("ours", "theirs"):
        storage = opened(url)
        study = storage.create_new_study([StudyDirection.MINIMIZE], name)
        for some in (given[:1], given[1:]):
            if name == "ours":
                add_trials(storage, study, some)
            else:
                for one in some:
                    storage.create_new_trial(study, template_trial=one)
        assert count_trials(storage, study) == len(given)
        storage.remove_session()
        storage.engine.dispose()
        found.append(rows_of(url, name))
    ours, theirs = found
    assert [len(rows) for rows in ours.values()] == [4, 2, 3, 2]
    assert theirs == ours


def test_equal_run_ids_of_two_machines_are_two_studies(url: str, events: list[AnyEvent]) -> None:
    elsewhere = [msgspec.structs.replace(e, time=e.time + 0.5) for e in events]
    study = StudyMirror(url)
    for found in (events, elsewhere, events, elsewhere):
        assert study.record(found) == ""
    study.close()
    storage = opened(url)
    names = [s.study_name for s in storage.get_all_studies()]
    storage.remove_session()
    storage.engine.dispose()
    assert len(names) == 2
    assert [len(trials_of(url, n)) for n in names] == [4, 4]


def test_a_locked_database_costs_a_notice_and_no_trial(url: str, tmp_path: Path, events: list[AnyEvent]) -> None:
    mirror(url, events[:9])
    holder = sqlite3.connect(tmp_path / "tuner.db")
    holder.execute("BEGIN EXCLUSIVE")
    assert "locked" in mirror(url, events, limit_s=0.1)
    holder.close()
    assert mirror(url, events) == ""
    assert len(trials_of(url)) == 4


def test_a_database_made_anew_in_between_gets_all_trials_again(
    url: str, tmp_path: Path, events: list[AnyEvent]
) -> None:
    study = StudyMirror(url)
    study.record(events[:10])
    (tmp_path / "tuner.db").rename(tmp_path / "tuner.db.corrupt-1")
    assert study.record(events) == ""
    study.close()
    assert len(trials_of(url)) == 4


def test_nothing_is_printed_and_optunas_verbosity_stays(
    url: str, events: list[AnyEvent], capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    mirror(url, events)
    assert capfd.readouterr() == ("", "")
    assert before == optuna.logging.get_verbosity()


def test_events_that_do_not_start_with_the_run_are_a_mistake(url: str) -> None:
    with pytest.raises(ValueError, match="not RunStarted"):
        mirror(url, whole_run()[1:])


def test_optuna_dashboard_lists_the_study(full: str) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard isn't installed")
    storage = optuna.storages.RDBStorage(full)
    answers: list[str] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> None:
        answers.append(status)

    request = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/api/studies",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
    }
    body = b"".join(dashboard.wsgi(storage)(request, start_response))
    storage.remove_session()
    storage.engine.dispose()
    assert answers == ["200 OK"]
    assert [s["study_name"] for s in json.loads(body)["study_summaries"]] == ["nbody-3f9a1c"]
