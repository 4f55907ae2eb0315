"""Optuna's database storage, quick at taking finished trials with many parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialParamModel

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["HastyStorage"]


class HastyStorage(RDBStorage):
    """Parameters are added as they are.

    Optuna (5.0) looks up the trial and an earlier distribution for every single parameter, two milliseconds each: with
    eighty knobs a sixth of a second a trial. Here all of a study's trials have the distributions that one probe found.
    The method is private to Optuna; a test of the study's content and our pin on Optuna 5 answer for it.
    """

    def _set_trial_param_without_commit(
        self,
        session: Session,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
        previous_distribution: BaseDistribution | None = None,
    ) -> None:
        session.add(
            TrialParamModel(
                trial_id=trial_id,
                param_name=param_name,
                param_value=param_value_internal,
                distribution_json=distribution_to_json(distribution),
            )
        )
