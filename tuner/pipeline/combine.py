"""Main effects of single settings, and the combinations that they promise something for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from tuner.knobs import DEFAULT, UNSET, Config, Knob
from tuner.pipeline.context import Run

__all__ = ["best_flips", "combinations", "compatible", "completed", "flip", "joined", "main_effect"]


def flip(knob: Knob, value: str) -> Config:
    """The knob's value alone, together with the settings without which it has no meaning."""
    return Config.of({**knob.requires, knob.name: value})


def completed(config: Config, knobs: Mapping[str, Knob], held: Config) -> Config:
    """`config`, settings of `knobs`, with what these mean nothing without where that is neither one of `knobs` nor
    `held`: alone it did nothing, so it left the space."""
    needed = {r: v for n, _ in config.settings for r, v in knobs[n].requires.items()}
    return Config.of({r: v for r, v in needed.items() if r not in knobs and r not in held.names}).join(config)


def main_effect(run: Run, knob: Knob, value: str) -> float:
    """The gain of one setting alone, 0 where it is not known."""
    trial = run.trials.get(flip(knob, value)) if value != UNSET else None
    return trial.estimate.gain if trial is not None and trial.estimate is not None else 0.0


def best_flips(run: Run, knobs: Mapping[str, Knob], least: Mapping[str, float]) -> list[Config]:
    """Each knob's best value alone, where that gains more than the knob's `least`; those that gain most first."""
    best = {
        name: max((v for v in knob.values if v != UNSET), key=lambda v, knob=knob: main_effect(run, knob, v))  # type: ignore[misc]
        for name, knob in knobs.items()
    }
    gains = {name: main_effect(run, knobs[name], value) for name, value in best.items()}
    promising = sorted((name for name in best if gains[name] > least[name]), key=lambda n: -gains[n])
    return [flip(knobs[name], best[name]) for name in promising]


def compatible(flips: Sequence[Config]) -> list[Config]:
    """Of `flips`, the best first, without those whose settings contradict a better one's."""
    together: list[Config] = []
    for one in flips:
        full = joined(together)
        if all(full.get(name) in (UNSET, value) for name, value in one.settings):
            together.append(one)
    return together


def combinations(flips: Sequence[Config]) -> list[Config]:
    """Of `flips`, the best first: the best two, the best three and so on, and all of them without each one; of those
    that go together."""
    together = compatible(flips)
    found = [joined(together[:size]) for size in range(2, len(together) + 1)]
    found += [joined([*together[:i], *together[i + 1 :]]) for i in range(len(together))]
    return [c for c in dict.fromkeys(found) if c not in flips and c != DEFAULT]


def joined(flips: Sequence[Config]) -> Config:
    """All of them in one."""
    return functools.reduce(Config.join, flips, DEFAULT)
