"""The search stage's sampler: Optuna's TPE over a bounded history, in memory, with the environment lane held."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.trial import TrialState

from tuner.knobs import UNSET, Config, Knob
from tuner.store.events import TrialFinished

__all__ = ["Sampler"]

# TPE's cost a suggestion grows with the history; some hundreds of trials keep it below 50 ms.
_HISTORY = 500


class Sampler:
    """Ask for configs, tell what became of them.

    A trial that its own settings made fail is told as pruned: TPE ranks those below every finished one without a
    number being invented. Infrastructure failures are told as failed, which TPE ignores.
    """

    def __init__(self, knobs: Mapping[str, Knob], *, seed: int) -> None:
        self._knobs = dict(knobs)
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(knob.values) for name, knob in self._knobs.items()
        }
        self._seed = seed
        self._asked: dict[Config, optuna.Trial] = {}
        with _quiet():
            self._study = optuna.create_study(direction="minimize", sampler=self._tpe(0))

    def _tpe(self, salt: int) -> TPESampler:
        return TPESampler(seed=self._seed + salt, multivariate=True, constant_liar=True, n_startup_trials=0)

    def learn(self, trials: Iterable[TrialFinished]) -> None:
        """Add trials that were measured elsewhere (screening flips, an interrupted run): the newest `_HISTORY`."""
        known = [t for t in trials if t.config.names <= self._knobs.keys() and self._expressible(t.config)]
        for trial in known[-_HISTORY:]:
            if trial.config in self._asked:
                continue
            self._study.add_trial(self._frozen(trial))

    def ask(self, count: int, *, environment: Config, avoid: Iterable[Config]) -> list[Config]:
        """Up to `count` new configs under the environment-lane settings `environment`; none of `avoid`, none twice."""
        with _quiet():
            return self._ask(count, environment, set(avoid))

    def _ask(self, count: int, environment: Config, seen: set[Config]) -> list[Config]:
        held = {n: environment.get(n) for n, k in self._knobs.items() if k.lane == "environment"}
        base = self._tpe(len(self._study.trials))
        self._study.sampler = PartialFixedSampler(held, base) if held else base
        found: list[Config] = []
        for _ in range(4 * count):
            trial = self._study.ask(self._distributions)
            config = Config.of({n: str(v) for n, v in trial.params.items()})
            if config in seen:
                self._study.tell(trial, state=TrialState.FAIL)
                continue
            seen.add(config)
            self._asked[config] = trial
            found.append(config)
            if len(found) == count:
                break
        return found

    def tell(self, trial: TrialFinished) -> None:
        """Report what was asked for. A config that was not asked for is learned instead."""
        asked = self._asked.pop(trial.config, None)
        if asked is None:
            self.learn([trial])
        elif trial.value is not None:
            self._study.tell(asked, trial.value)
        else:
            self._study.tell(asked, state=_state(trial))

    def abandon_except(self, evaluated: Container[Config]) -> None:
        """Close what was asked for and never evaluated: an open trial makes every later ask rescan the history."""
        for config in [c for c in self._asked if c not in evaluated]:
            self._study.tell(self._asked.pop(config), state=TrialState.FAIL)

    def _expressible(self, config: Config) -> bool:
        return all(config.get(n) in k.values for n, k in self._knobs.items())

    def _frozen(self, trial: TrialFinished) -> optuna.trial.FrozenTrial:
        params = {n: trial.config.get(n) if n in trial.config.names else UNSET for n in self._knobs}
        return optuna.trial.create_trial(
            params=params,
            distributions=self._distributions,
            value=trial.value,
            state=TrialState.COMPLETE if trial.value is not None else _state(trial),
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna announces each study, and warns that the multivariate TPE, its constant liar and PartialFixedSampler are
    experimental: our pin on Optuna 5 and the tests answer for them."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _state(trial: TrialFinished) -> TrialState:
    blamed = trial.failure is not None and trial.failure.kind.caused_by_config
    return TrialState.PRUNED if blamed else TrialState.FAIL
