"""What a user asks of one run."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tuner.knobs.pgle import Form
from tuner.measure.objective import ObjectiveName

__all__ = ["RunOptions"]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `tune run` takes; validated by the CLI and by `tuner.api`.

    `spaces`: names or files; empty takes the platform's default. `budget_s`: seconds for the whole run. `trials`: at
    most so many trials in the search stage. `min_gain`: the margin δ as a fraction (0.005 is 0.5 %). `hold`: knobs
    fixed for the whole run, the default included (`--knob NAME=VALUE`). `allow`: {"numerics"} admits and labels
    settings that change results. `override`: inherited variables that knobs may change all the same. `store`: a
    folder or a database URL. `seed` orders rounds and seeds the sampler. `objective`: what is made small, see
    `tuner.measure.objective`. `max_memory`: most that a step may need at its peak, in bytes if it is an int, else as a
    share of the device's memory; None: no limit. `first`: groups of knobs that are screened before all others.
    `launch`: the command that starts a program's processes on several hosts, before the interpreter ("srun -N 2"); ""
    for none. `seal_with`: production's own command, which fills the sealed cache too and must find everything in it; ""
    for none; `seal_s`: seconds after which it is ended.
    for none. `pgle`: how a PGLE profile reaches the program in production; `install_path`: the folder that its file
    will be in then, "" for the run's own.
    """

    workload: Path
    argv: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ()
    budget_s: float = 600.0
    trials: int | None = None
    min_gain: float = 0.005
    hold: dict[str, str] = {}
    platform: str | None = None
    allow: frozenset[str] = frozenset()
    require_gain: bool = False
    override: tuple[str, ...] = ()
    python: str = sys.executable
    store: str = ".tuner"
    fresh: bool = False
    seed: int = 0
    objective: ObjectiveName = "mean"
    max_memory: int | float | None = None
    first: tuple[str, ...] = ()
    launch: str = ""
    seal_with: str = ""
    seal_s: float = 120.0
    pgle: Form = "cache"
    install_path: str = ""
    command: tuple[str, ...] = ()
