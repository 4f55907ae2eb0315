"""What fresh processes take: pairs of the confirmation, and what is left to do after it."""

from __future__ import annotations

import math

import msgspec

from tuner.measure import LOOKS, USUAL_TURNS, PairCost
from tuner.pipeline.alternate import RESET_EVERY, WARM_UP
from tuner.pipeline.context import Run
from tuner.store.events import SessionStarted
from tuner.store.records import BaselineRecord

__all__ = [
    "SEALED_PAIRS",
    "ProcessCost",
    "least_reserve",
    "pair_cost",
    "process_cost",
    "profile_seconds",
    "profiles_kept",
    "seal_seconds",
    "trace_seconds",
]

SEALED_PAIRS = (3, 6)
"""Pairs that the sealed executable is compared with the default in: at least so many, at most so many."""

_CORES_A_START = 4
_SEAL_PROCESSES = 2
_REPORT_S = 2.0
# Time for comparing the sealed executable is kept only where that takes no more than this share of the budget.
_SEALED_SHARE = 0.1
# The same for profiles. One takes a few seconds: ceilings, and writing and reading a trace.
_PROFILE_SHARE = 0.1
_CEILINGS_S, _TRACE_S = 2.0, 2.0
_TRACED_BLOCKS = 12  # of 0.2 s, four with 0.3 s before them, and the traced steps
# The second compile in a process finds most of what its autotuner must know; of its whole time it took a third to
# two thirds on an H100.
_AGAIN = 0.6
_SIDES = 2


class ProcessCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to start a process, to compile the step in it, to time one block, and to put the state back."""

    start_s: float
    compile_s: float
    block_s: float
    reset_s: float = 0.0

    @property
    def turn_s(self) -> float:
        """One block in a turn, with its part of the resets."""
        return self.block_s + self.reset_s / RESET_EVERY


def process_cost(baseline: BaselineRecord) -> ProcessCost:
    """What the baseline found."""
    return ProcessCost(
        start_s=baseline.start_s,
        compile_s=baseline.compile_s,
        block_s=baseline.block_s,
        reset_s=baseline.reset_s,
    )


def pair_cost(
    run: Run, processes: int, cost: ProcessCost, *, compiling: int | None = None, filling: int = 0
) -> PairCost:
    """What a pair takes that consists of so many fresh processes: they start side by side as far as there are cores,
    compile one after another (all of them, or so many), and take turns. `filling`: processes that before it fill a
    cache for one of them."""
    beside = max(1, int(run.host.usable_cores) // _CORES_A_START)
    starts_s = math.ceil(processes / beside) * cost.start_s
    return PairCost(
        setup_s=starts_s
        + (processes if compiling is None else compiling) * cost.compile_s
        + processes * WARM_UP * cost.turn_s
        + filling * (cost.start_s + cost.compile_s),
        turn_s=processes * cost.turn_s,
    )


def seal_seconds(run: Run, cost: ProcessCost) -> float:
    """What is left to do after the confirmation: fill the cache, prove it, compare it with the default where the budget
    is large enough for that, profile both where that is a small share, report."""
    compared_s = SEALED_PAIRS[0] * pair_cost(run, 2, cost, compiling=1).seconds(USUAL_TURNS)
    kept_s = compared_s if compared_s <= _SEALED_SHARE * run.options.budget_s else 0.0
    return _SEAL_PROCESSES * (cost.start_s + cost.compile_s) + kept_s + profiles_kept(run, cost) + _REPORT_S


def least_reserve(run: Run) -> float:
    """Seconds that confirm and seal can't do without: pairs up to the first look, where more may be planned."""
    cost = process_cost(run.record("baseline", BaselineRecord))
    return LOOKS[0] * pair_cost(run, 2, cost).seconds(USUAL_TURNS) + seal_seconds(run, cost)


def profiles_kept(run: Run, cost: ProcessCost) -> float:
    """Seconds kept for the profiles of default and winner until they are there: none where they would take too much of
    the budget."""
    needed_s = max(0, _SIDES - len(run.profiled)) * trace_seconds(run, cost, attribute=False)
    return needed_s if needed_s <= _PROFILE_SHARE * run.options.budget_s else 0.0


def profile_seconds(run: Run, cost: ProcessCost, *, attribute: bool = True) -> float:
    """One side's profile in a process of its own. The run's first process finds nothing in the machine's caches: once
    another has started alone, that one counts."""
    alone_s = [e.start_s for e in run.events if isinstance(e, SessionStarted) and e.role == "seal"]
    start_s = min(cost.start_s, max(alone_s, default=cost.start_s))
    return start_s + cost.compile_s + trace_seconds(run, cost, attribute=attribute)


def trace_seconds(run: Run, cost: ProcessCost, *, attribute: bool = True) -> float:
    """One side's profile in a process that has compiled the step: its trace, and with `attribute` the other trace, on a
    GPU with another compile."""
    again_s = 0.0 if run.loaded.platform == "cpu" else _AGAIN * cost.compile_s
    named_s = _TRACE_S + again_s if attribute else 0.0
    return _CEILINGS_S + _TRACE_S + named_s + _TRACED_BLOCKS * cost.block_s
