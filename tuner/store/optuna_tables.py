"""Optuna's tables, written as its own storage writes them, but many trials at once.

Optuna 5 has no call for that: of every parameter `create_new_trial` asks the database twice before it writes it, and
`get_n_trials` reads all that it counts. With seventy knobs a trial takes a tenth of a second, in which the device that
a run is about has nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

__all__ = ["add_trials", "count_trials"]


def count_trials(storage: RDBStorage, study: int) -> int:
    """How many trials the study with this id has. Raises what SQLAlchemy raises."""
    import sqlalchemy as sa
    from optuna.storages._rdb.models import TrialModel

    query = sa.select(sa.func.count()).select_from(TrialModel).where(TrialModel.study_id == study)
    with storage.engine.connect() as connection:
        return connection.execute(query).scalar_one()


def add_trials(storage: RDBStorage, study: int, trials: Sequence[FrozenTrial]) -> None:
    """Add finished trials of at most one value to the study with this id, numbered on from those that it has: all of
    them, or none if it raises what SQLAlchemy raises."""
    import sqlalchemy as sa
    from optuna.storages._rdb import models
    from sqlalchemy.orm import Session

    if not trials:
        return
    with Session(storage.engine) as session, session.begin():
        models.StudyModel.find_or_raise_by_id(study, session, for_update=True)  # the numbers are this writer's now
        made = [
            models.TrialModel(
                study_id=study,
                state=trial.state,
                datetime_start=trial.datetime_start,
                datetime_complete=trial.datetime_complete,
            )
            for trial in trials
        ]
        session.add_all(made)
        session.flush()
        first = made[0].count_past_trials(session)
        rows: dict[type[Any], list[dict[str, Any]]] = {}
        for number, (model, trial) in enumerate(zip(made, trials, strict=True), first):
            model.number = number
            for table, row in _rows(trial):
                rows.setdefault(table, []).append({"trial_id": model.trial_id, **row})
        for table, found in rows.items():
            session.execute(sa.insert(table), found)


def _rows(trial: FrozenTrial) -> Iterator[tuple[type[Any], dict[str, Any]]]:
    """Table and row of everything that a trial has beside its own row."""
    from optuna.distributions import distribution_to_json
    from optuna.storages._rdb import models

    if trial.value is not None:
        value, kind = models.TrialValueModel.value_to_stored_repr(trial.value)
        yield models.TrialValueModel, {"objective": 0, "value": value, "value_type": kind}
    for name, choice in trial.params.items():
        distribution = trial.distributions[name]
        yield (
            models.TrialParamModel,
            {
                "param_name": name,
                "param_value": distribution.to_internal_repr(choice),
                "distribution_json": distribution_to_json(distribution),
            },
        )
    for key, attribute in trial.user_attrs.items():
        yield models.TrialUserAttributeModel, {"key": key, "value_json": json.dumps(attribute)}
