"""Fresh processes side by side: start them together, time them in turns, and watch the machine meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import msgspec

from tuner.errors import SessionEnded
from tuner.machine import disturbed, readings
from tuner.measure import BlockForm, even_forms
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.pipeline.demands import without_work
from tuner.protocol.failure import Failure
from tuner.session import Session
from tuner.store.events import RoundTimed, SessionClosed, SessionStarted

__all__ = ["RESET_EVERY", "WARM_UP", "Watched", "alternate", "end_all", "start_all"]

K = TypeVar("K", bound=Hashable)

# Turns that don't count: the first blocks of a process run on cold caches and waking clocks.
WARM_UP = 2
# In so many turns the state is put back once, in the same ones on all sides: of a large state it takes as long as a
# block. A side that is faster takes more steps until then.
RESET_EVERY = 4
# Shares of CPU time are told over at least so long: the kernel counts in ticks of 10 ms.
_WINDOW_S = 0.5
# Of a pair's turns so many may be disturbed: the median over turns stands that.
_DISTURBED_SHARE = 0.25


class Watched(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """`rows`: the objective's value of each in seconds, one a turn that counts; `steps`: of a workload of several steps
    each one's own. `conditions`: readings over all turns. `disturbed`: what
    disturbed more than a quarter of them, most often, and how many; "" if nothing did."""

    rows: dict[K, list[float]]
    steps: dict[K, list[dict[str, float]]]
    conditions: dict[str, float]
    disturbed: str


def start_all(run: Run, sessions: Mapping[K, Session], *, charge: Callable[[K, Failure], None]) -> None:
    """Start all at once: imports and state building overlap, and nothing is timed meanwhile. What doesn't start is
    charged."""
    began = run.budget.now()
    with ThreadPoolExecutor(len(sessions)) as pool:
        started = {key: pool.submit(s.start) for key, s in sessions.items()}
    took_s = run.budget.now() - began
    for key, future in started.items():
        try:
            loaded = future.result()
        except SessionEnded as ended:
            charge(key, ended.failure)
            continue
        if failure := without_work(run, loaded):
            charge(key, failure)
        launched = sessions[key].launch
        run.emit(
            SessionStarted(
                session=launched.log.stem,
                role=launched.role,
                config=launched.config,
                env=dict(launched.env),
                loaded=loaded,
                start_s=took_s / len(sessions),
            )
        )


def end_all(run: Run, sessions: Mapping[K, Session]) -> None:
    """Close every session, all at once: a process that held gigabytes takes seconds to end."""
    ended = {key: session.ended for key, session in sessions.items()}
    with ThreadPoolExecutor(max(1, len(sessions))) as pool:
        closing = [pool.submit(session.close) for session in sessions.values()]
    for key, future in zip(sessions, closing, strict=True):
        future.result()
        run.emit(SessionClosed(session=sessions[key].launch.log.stem, failure=ended[key]))


def alternate(
    run: Run,
    sessions: Mapping[K, Session],
    *,
    stage: str,
    form: BlockForm,
    turns: int,
    charge: Callable[[K, Failure], None],
) -> Watched[K]:
    """A block of each session's control, `turns` times after the warm-up, in which they have the same `form`; from then
    on they last equally long. The order turns round every time. A session that fails is charged, and left out from
    there on.

    The machine is sampled after each turn that ends a window of half a second; a turn is as disturbed as its window.
    """
    rows: dict[K, list[float]] = {key: [] for key in sessions}
    steps: dict[K, list[dict[str, float]]] = {key: [] for key in sessions}
    out: set[K] = set()
    forms, step_s = dict.fromkeys(sessions, form), dict[K, float]()
    watch = _Watch(run)
    for turn in range(turns + WARM_UP):
        if turn == WARM_UP:
            forms |= even_forms(form, step_s)
            watch.begin()
        for key in sessions if turn % 2 == 0 else reversed(list(sessions)):
            if key in out:
                continue
            try:
                entry = sessions[key].round([forms[key].arm(CONTROL)], reset=turn % RESET_EVERY == 0)[0]
            except SessionEnded as ended:
                entry = ended.failure
            if isinstance(entry, Failure):
                out.add(key)
                charge(key, entry)
                continue
            name = sessions[key].launch.log.stem
            run.emit(RoundTimed(session=name, stage=stage, control=CONTROL, blocks=(entry,)))
            step_s[key] = entry.step_s
            if turn >= WARM_UP:
                rows[key].append(run.value_s(name, entry))
                steps[key].append(entry.parts)
        if turn >= WARM_UP:
            watch.turn(last=turn == turns + WARM_UP - 1)
    return Watched(rows=rows, steps=steps, conditions=watch.conditions(), disturbed=watch.verdict())


class _Watch:
    """Samples over the turns of one pair."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._open = 0  # turns since the last sample
        self._turns = 0
        self._troubles: Counter[str] = Counter()

    def begin(self) -> None:
        self._first = self._last = self._run.sample()

    def turn(self, *, last: bool) -> None:
        self._open += 1
        self._turns += 1
        now = self._run.sample()
        if not now or (now["time_s"] - self._last["time_s"] < _WINDOW_S and not last):
            return
        if trouble := disturbed(self._last, now, self._run.calm):
            self._troubles[trouble] += self._open
        self._last, self._open = now, 0

    def conditions(self) -> dict[str, float]:
        return readings(self._first, self._last) if self._first else {}

    def verdict(self) -> str:
        turns = self._troubles.total()
        if turns <= _DISTURBED_SHARE * self._turns:
            return ""
        return f"{self._troubles.most_common(1)[0][0]} ({turns} of {self._turns} turns)"
