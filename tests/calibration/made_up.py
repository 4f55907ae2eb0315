"""A made-up search space of thirty knobs, of which none helps or one does, and the machine that they act on."""

from __future__ import annotations

import random

from fit import Fitted

from tuner.session import FakeMachine
from tuner.session.fake_machine import Settings

__all__ = ["FAST", "HARM", "machine", "space"]

_SAME = [f"xla_same_{i}" for i in range(10)]  # compile to the control's code
_OTHER = [f"xla_other_{i}" for i in range(8)]  # compile to other code of equal speed
HARM = {
    f"xla_slow_{i}": size for i, size in enumerate((0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2))
}
"""Knobs that make the step slower, by so much (log time)."""

# As the tuner reckons: so many cores are busy while a process starts.
_CORES_A_START = 4
_VARIABLE = "MADE_UP_VARIABLE"  # needs a process of its own, and does nothing

FAST = _OTHER[3]
"""The one that helps where one does: it compiles to other code, as harmless ones do."""


def _knob(name: str, *, acts_on: str, lane: str = "option", carrier: str = "xla_flag") -> str:
    return f"""
[[knob]]
name = "{name}"
carrier = "{carrier}"
type = "{"bool" if carrier == "xla_flag" else "string"}"
values = ["unset", "{"true" if carrier == "xla_flag" else "1"}"]
lane = "{lane}"
acts_on = "{acts_on}"
why = "made up"
source = "calibration"
"""


def space(seed: int) -> str:
    """The space as TOML, its knobs in a random order: where time is short, who comes first matters."""
    knobs = [
        *(_knob(name, acts_on="hlo" if index % 5 else "codegen") for index, name in enumerate(_SAME)),
        *(_knob(name, acts_on="hlo") for name in (*_OTHER, *HARM)),
        _knob(_VARIABLE, acts_on="runtime", lane="environment", carrier="env"),
    ]
    random.Random(seed).shuffle(knobs)
    return "version = 1\n" + "".join(knobs)


def machine(model: Fitted, *, gain: float, seed: int) -> FakeMachine:
    """The model's machine, on which `FAST` gains so much (log time; 0: nothing helps)."""
    effects: dict[Settings, float] = {(name, "true"): size for name, size in {**HARM, FAST: -gain}.items()}
    return FakeMachine(
        step_ms=model.step_ms,
        effects=effects,
        inert=_SAME,
        noise=model.noise,
        start_s=model.start_s,
        starts_beside=max(1, model.cores // _CORES_A_START),
        compile_s=model.compile_s,
        platform=model.platform,
        seed=seed,
    )
