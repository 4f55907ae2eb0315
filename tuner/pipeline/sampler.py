"""The search stage's sampler: Optuna's TPE over a bounded history, in memory, with the environment lane held."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.trial import TrialState

from tuner.knobs import DEFAULT, UNSET, Config, Knob
from tuner.pipeline.combine import completed
from tuner.store.events import TrialFinished

__all__ = ["Sampler"]

# TPE's cost a suggestion grows with the trials that it sees times the parameters of each: so much of it stays below
# 50 ms on one core (measured by tests/benchmarks/pace.py). More than `_MOST` trials teach it little more.
_WORK = 4000
_MOST, _LEAST = 300, 50


class Sampler:
    """Ask for configs, tell what became of them.

    Each batch comes from a study of its own that knows a bounded part of what was told: the best third, and of the rest
    the newest. A trial that its own settings made fail is told as pruned: TPE ranks those below every finished one
    without a number being invented. Infrastructure failures are told as failed, which TPE ignores.
    """

    def __init__(self, knobs: Mapping[str, Knob], *, seed: int, held: Config = DEFAULT) -> None:
        """`held`: what the run holds fixed, which knobs may require."""
        self._knobs = dict(knobs)
        self._held = held
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(knob.values) for name, knob in self._knobs.items()
        }
        self._seed = seed
        self._told: list[TrialFinished] = []
        self._limit = max(_LEAST, min(_MOST, _WORK // max(1, len(knobs))))

    def tell(self, trial: TrialFinished) -> None:
        """Take a finished trial into account, wherever it was measured; one beyond these knobs teaches nothing."""
        own = trial.config.drop(*(trial.config.names - self._knobs.keys()))
        whole = completed(own, self._knobs, self._held)
        if self._held.join(whole) == self._held.join(trial.config) and self._expressible(own):
            self._told.append(trial)

    def ask(self, count: int, *, environment: Config, avoid: Iterable[Config]) -> list[Config]:
        """Up to `count` new configs under the environment-lane settings `environment`; none of `avoid`, none twice."""
        with _quiet():
            return self._ask(count, environment, set(avoid))

    def _ask(self, count: int, environment: Config, seen: set[Config]) -> list[Config]:
        held = {n: environment.get(n) for n, k in self._knobs.items() if k.lane == "environment"}
        base = TPESampler(seed=self._seed + len(seen), multivariate=True, constant_liar=True, n_startup_trials=0)
        study = optuna.create_study(direction="minimize", sampler=PartialFixedSampler(held, base) if held else base)
        study.add_trials([self._frozen(trial) for trial in self._seen()])
        found: list[Config] = []
        for _ in range(4 * count):
            trial = study.ask(self._distributions)
            config = self._meaningful(Config.of({n: str(v) for n, v in trial.params.items()}))
            if config in seen:
                study.tell(trial, state=TrialState.FAIL)
                continue
            seen.add(config)
            found.append(config)
            if len(found) == count:
                break
        return found

    def _meaningful(self, config: Config) -> Config:
        """`config` without settings that mean nothing in it, since another that they require is not there; with what
        they require and is nobody's to suggest."""
        whole = completed(config, self._knobs, self._held)
        there = self._held.join(whole)
        idle = [n for n in config.names if any(there.get(r) != v for r, v in self._knobs[n].requires.items())]
        return self._meaningful(config.drop(*idle)) if idle else whole

    def _seen(self) -> list[TrialFinished]:
        """What the next study knows, in the order told."""
        if len(self._told) <= self._limit:
            return self._told
        finished = [i for i, t in enumerate(self._told) if t.value is not None]
        best = sorted(finished, key=lambda i: self._told[i].value or 0.0)[: self._limit // 3]
        newest = sorted(set(range(len(self._told))) - set(best), reverse=True)
        return [self._told[i] for i in sorted([*best, *newest[: self._limit - len(best)]])]

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
