"""The sealed executable by itself: the best of several compiles where they differ, and its own gain, measured afresh.

The confirmation says what the settings do over random compiles. One executable is one draw of that lottery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from tuner.errors import SessionEnded
from tuner.handoff import loading
from tuner.knobs import DEFAULT, Config
from tuner.measure import USUAL_TURNS, Estimate, confirm, pair_of, turns_within
from tuner.pipeline.alternate import alternate, end_all, start_all
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.pipeline.costs import SEALED_PAIRS, pair_cost, process_cost, profiles_kept
from tuner.pipeline.launches import launch
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Variant
from tuner.session import Session
from tuner.store.records import BaselineRecord, ConfirmRecord

__all__ = ["DRAWS", "Sealed", "best_draw", "compare", "draws_differ"]

DRAWS = 3
"""Compiles that the one to be sealed is chosen from, where compiles differ."""

# What must still be done after the comparison: a process that loads the bundle, and the report.
_REPORT_S = 2.0


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """`estimate`: the executable's gain over a default compiled afresh in each of `pairs` pairs; None if it wasn't
    measured, `note` says why. `ms`: a step of it."""

    estimate: Estimate | None = None
    ms: float | None = None
    pairs: int = 0
    note: str = ""


class _Failed(Exception):
    """A process that should have loaded or compiled the step did not."""


def draws_differ(run: Run, confirmed: ConfirmRecord) -> bool:
    """True if compiles of the chosen config differ so much that choosing among several is worth the time, and the time
    is there: they made different programs, and the pairs' processes differ by δ or more."""
    programs = max((d.programs for d in confirmed.draws if d.config == confirmed.chosen), default=0)
    if programs < 2 or confirmed.noise is None or confirmed.noise.process < run.margin:
        return False
    cost = process_cost(run.record("baseline", BaselineRecord))
    made_s = (DRAWS - 1) * (cost.start_s + cost.compile_s)
    chosen_s = pair_cost(run, DRAWS, cost, compiling=0).seconds(USUAL_TURNS)
    compared_s = SEALED_PAIRS[0] * pair_cost(run, 2, cost, compiling=1).seconds(USUAL_TURNS)
    return _left_s(run) >= made_s + chosen_s + compared_s


def best_draw(run: Run, config: Config, caches: Sequence[Path]) -> tuple[int, tuple[float, ...]]:
    """Which of the executables in `caches` is fastest, and what a step of each takes in ms; the first one, and no
    times, if that can't be told."""
    run.status("seal", f"choosing the best of {len(caches)} compiles")
    try:
        rows = _rows(run, {f"draw-{i}": (config, cache) for i, cache in enumerate(caches)})
    except _Failed as failed:
        run.notice(f"the first compile is sealed, and not the best of several: {failed}")
        return 0, ()
    times = tuple(1e3 * median(rows[f"draw-{i}"]) for i in range(len(caches)))
    return times.index(min(times)), times


def compare(run: Run, config: Config, cache: Path) -> Sealed:
    """The gain of the executable in `cache`, loaded by fresh processes that alternate with a fresh default.

    The number of pairs is settled before the first, by the time that is left; the interval is Student's t over pairs.
    The fewest pairs go before the profiles, more of them don't.
    """
    cost = pair_cost(run, 2, process_cost(run.record("baseline", BaselineRecord)), compiling=1)
    least_s = SEALED_PAIRS[0] * cost.seconds(USUAL_TURNS)
    left_s = _left_s(run, profiles=_left_s(run, profiles=True) >= least_s)
    pairs = max(SEALED_PAIRS[0], min(SEALED_PAIRS[1], int(left_s / cost.seconds(USUAL_TURNS))))
    turns = turns_within(USUAL_TURNS, cost.turns_in(left_s / pairs))
    if (need_s := pairs * cost.seconds(turns)) > left_s:
        return Sealed(note=f"it takes about {need_s:.0f} s, and the budget had {max(0.0, left_s):.0f} s left")
    together = run.room_for(2)
    gains, times = [], []
    for index in range(pairs):
        run.status("seal", "the sealed executable against the default", done=index, total=pairs)
        try:
            sides = {f"sealed-{index}": (config, cache), f"sealed-{index}-default": (DEFAULT, None)}
            rows = _rows(run, sides, turns=turns)
        except _Failed as failed:
            return Sealed(note=str(failed))
        own, default = rows[f"sealed-{index}"], rows[f"sealed-{index}-default"]
        gains.append(-pair_of(own, default, together=together).log_ratio)
        times.append(median(own))
    found = confirm({"sealed": gains}, margin=run.margin, looks=(pairs,)).estimates["sealed"]
    return Sealed(estimate=found, ms=1e3 * median(times), pairs=pairs)


def _left_s(run: Run, *, profiles: bool = True) -> float:
    """Seconds that are left before the bundle must be proven, the sides profiled (if so) and the report written."""
    cost = process_cost(run.record("baseline", BaselineRecord))
    needed_s = cost.start_s + cost.compile_s + (profiles_kept(run, cost) if profiles else 0.0) + _REPORT_S
    return run.options.budget_s - run.budget.elapsed_s - needed_s


def _rows(
    run: Run, wanted: Mapping[str, tuple[Config, Path | None]], *, turns: int = USUAL_TURNS
) -> dict[str, list[float]]:
    """Values of the objective, one a turn, of fresh processes by name: each runs its config, loaded from its cache or
    (None) compiled afresh. Raises _Failed."""
    names = list(wanted)
    run.rng.shuffle(names)
    rows: dict[str, list[float]] = {}
    for group in [names] if run.room_for(len(names)) else [[n] for n in names]:
        sessions: dict[str, Session] = {}
        for name in group:
            config, cache = wanted[name]
            env = None if cache is None else loading(cache)
            sessions[name] = run.factory(launch(run, name, role="seal", config=config, env=env))
        try:
            start_all(run, sessions, charge=_fail)
            for name, session in sessions.items():
                _compile(name, session, loads=wanted[name][1] is not None)
            form = run.record("baseline", BaselineRecord).form
            rows |= alternate(run, sessions, stage="seal", form=form, turns=turns, charge=_fail).rows
        finally:
            end_all(run, sessions)
    return rows


def _compile(name: str, session: Session, *, loads: bool) -> None:
    """Compile the step, or load it: then every compile must be found in the cache."""
    try:
        reply = session.compile([Variant(id=CONTROL)])
    except SessionEnded as ended:
        _fail(name, ended.failure)
        raise
    if isinstance(failure := reply.results[0], Failure):
        _fail(name, failure)
    if loads and reply.cache_hits < max(1, reply.cache_requests):
        raise _Failed(f"only {reply.cache_hits} of {reply.cache_requests} compiles were found in the sealed cache")


def _fail(name: str, failure: Failure) -> None:
    raise _Failed(f"{name} failed: {failure.message}")
