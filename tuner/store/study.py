"""The finished trials of a run as an Optuna study, for optuna-dashboard and whoever else reads Optuna."""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import StoreError
from tuner.knobs.knob import UNSET
from tuner.store.events import AnyEvent, RunStarted, StageFinished, TrialFinished
from tuner.store.optuna_tables import add_trials, count_trials
from tuner.store.records import ProbeRecord
from tuner.store.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["StudyMirror", "load_study"]


class StudyMirror:
    """Copies finished trials into a study of Optuna's in the database `url`. One caller at a time.

    A study bears its run's id (with a suffix where another machine's run has it) and is minimised: a value is the log
    ratio to the default, negative is faster. The parameters are the knobs that the probe left, under their own names
    with all their values. A trial that failed has no value: it is PRUNED if its config is to blame, which Optuna's
    samplers rank worst, and FAIL if the machine was, which they ignore; user attributes say why.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._storage: RDBStorage | None = None

    @uninterrupted()
    def open(self, *, limit_s: float = 2.0) -> None:
        """Make Optuna's tables, or check them, which takes half a second; else the first `record` does. Raises what
        SQLAlchemy and Optuna raise."""
        from tuner.store.database import retry

        if self._storage is None:
            with _quiet():
                self._storage = retry(lambda: _open(self._url), limit_s=limit_s)

    @uninterrupted()
    def record(self, events: Sequence[AnyEvent], *, limit_s: float = 2.0) -> str:
        """Add what the study lacks of the trials in `events`: all of one run's so far, from its RunStarted on.

        Call it once a batch, which is one transaction. Returns "" or, if the database couldn't be written within
        `limit_s` seconds, a notice that says why; the next call adds the rest.
        """
        import sqlalchemy.exc
        from optuna.exceptions import OptunaError

        from tuner.store.database import explain, passing, retry, shown

        try:
            with _quiet():
                try:
                    retry(lambda: self._add(events), limit_s=limit_s)
                except (OptunaError, sqlalchemy.exc.SQLAlchemyError) as error:
                    if passing(error) or self._storage is None:
                        raise
                    self.close()  # the file may be another one now: a damaged one is set aside and made anew
                    retry(lambda: self._add(events), limit_s=limit_s)
        except (OptunaError, sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
            return f"the Optuna study wasn't updated: {shown(self._url)}: {explain(error)}"
        return ""

    @uninterrupted()
    def close(self) -> None:
        """Let go of the database. May be called twice."""
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()
            self._storage = None

    def _add(self, events: Sequence[AnyEvent]) -> None:
        first = events[0]
        if not isinstance(first, RunStarted):
            raise ValueError(f"the first event of a run is {type(first).__name__}, not RunStarted")
        self._storage = self._storage or _open(self._url)
        study = _study(self._storage, first)
        values = _values(events)
        missing = _missing(self._storage, study, [e for e in events if isinstance(e, TrialFinished)])
        add_trials(self._storage, study, [_frozen(trial, values) for trial in missing])


def load_study(url: str, first: RunStarted) -> Study:
    """The study that mirrors the run that began with `first`, from the database at `url`.

    Raises StoreError if it isn't there, or the database can't be read.
    """
    import optuna
    import sqlalchemy.exc
    from optuna.exceptions import OptunaError

    from tuner.store.database import explain, shown
    from tuner.store.lines import uid_of

    uid = uid_of(first)
    file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
    try:
        if file is None or file.is_file():  # looking must not make a database
            storage = _open(url)
            for name in (first.run, f"{first.run}@{uid}"):
                with contextlib.suppress(KeyError):
                    study = storage.get_study_id_from_name(name)
                    if storage.get_study_user_attrs(study).get("uid") == uid:
                        return optuna.load_study(study_name=name, storage=storage)
            storage.remove_session()
    except (OptunaError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise StoreError(f"the Optuna study can't be read: {explain(error)}", where=shown(url)) from error
    raise StoreError(
        f"no study of run {first.run} is in the database",
        where=shown(url),
        next="`tune store rebuild` makes it from the event log",
    )


def _open(url: str) -> RDBStorage:
    """Optuna's storage, its tables made or checked: that loads all of Optuna's migrations, so it is kept open."""
    from optuna.storages import RDBStorage

    from tuner.store.database import alone, engine_for, engine_options, hasten

    with alone(engine_for(url)):
        storage = RDBStorage(url, engine_kwargs=engine_options(url))
    hasten(storage.engine)
    return storage


def _study(storage: RDBStorage, first: RunStarted) -> int:
    """The id of this run's study, made if need be."""
    from optuna.exceptions import DuplicatedStudyError
    from optuna.study import StudyDirection

    from tuner.store.lines import uid_of

    uid = uid_of(first)
    for name in (first.run, f"{first.run}@{uid}"):
        try:
            study = storage.get_study_id_from_name(name)
        except KeyError:
            with contextlib.suppress(DuplicatedStudyError):  # somebody else made it in this moment
                storage.create_new_study([StudyDirection.MINIMIZE], name)
            study = storage.get_study_id_from_name(name)
        there = storage.get_study_user_attrs(study)
        if there.get("uid", uid) != uid:
            continue
        if "uid" not in there:
            for key, value in (("workload", first.workload), ("command", " ".join(first.command)), ("uid", uid)):
                storage.set_study_user_attr(study, key, value)
        return study
    raise RuntimeError(f"another run's study has the name {first.run}@{uid}")


def _missing(storage: RDBStorage, study: int, trials: Sequence[TrialFinished]) -> list[TrialFinished]:
    """Those that the study lacks. Their order there is ours, so the last one tells, without reading them all."""
    count = count_trials(storage, study)
    if count == 0:
        return list(trials)
    if count <= len(trials):
        last = storage.get_trial_id_from_study_id_trial_number(study, count - 1)
        if storage.get_trial_user_attrs(last).get("trial") == trials[count - 1].number:
            return list(trials[count:])
    there = {t.user_attrs.get("trial") for t in storage.get_all_trials(study, deepcopy=False)}
    return [t for t in trials if t.number not in there]


def _values(events: Sequence[AnyEvent]) -> dict[str, tuple[str, ...]]:
    """The values of each knob that the probe left; "unset" is one of them."""
    for event in events:
        if isinstance(event, StageFinished) and isinstance(event.record, ProbeRecord):
            return {k.name: tuple(dict.fromkeys((UNSET, *k.values))) for k in event.record.knobs}
    return {}


def _frozen(event: TrialFinished, values: Mapping[str, tuple[str, ...]]) -> FrozenTrial:
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    value = event.value if event.value is not None and math.isfinite(event.value) else None
    if event.failure is not None:
        value = None
        state = TrialState.PRUNED if event.failure.kind.caused_by_config else TrialState.FAIL
    else:
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
    # A config from elsewhere may hold values that the space doesn't declare; "settings" shows them all the same.
    params = {n: event.config.get(n) for n, choices in values.items() if event.config.get(n) in choices}
    trial = create_trial(
        state=state,
        value=value,
        params=params,
        distributions={n: CategoricalDistribution(values[n]) for n in params},
        user_attrs=_attributes(event),
    )
    # Optuna wants local times without a zone.
    trial.datetime_start = trial.datetime_complete = datetime.datetime.fromtimestamp(event.time)
    return trial


def _attributes(event: TrialFinished) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "trial": event.number,
        "stage": event.stage,
        "session": event.session,
        "fingerprint": event.fingerprint,
        "settings": str(event.config),
    }
    if event.label:
        attributes["label"] = event.label
    if event.shared_with >= 0:
        attributes["shared_with"] = event.shared_with
    if event.estimate is not None and math.isfinite(event.estimate.low) and math.isfinite(event.estimate.high):
        # As ratios, so that they can be compared with the value: negative is faster.
        attributes["interval"] = [-event.estimate.high, -event.estimate.low]
    if event.failure is not None:
        attributes |= {"failure": event.failure.kind.value, "message": event.failure.message}
    elif event.value is None or not math.isfinite(event.value):
        attributes |= {"failure": "no_value", "message": f"no finite value: {event.value}"}
    return attributes


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna announces each new study on stderr; library code prints nothing."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
