"""A worker as one rank of a gang: it agrees with the others before anything can hang, and tells how far it is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tuner.protocol.codec import from_json, to_json
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Progress
from tuner.worker.failures import RankFailed, failure_of

__all__ = ["Member", "Reporter", "together"]

T = TypeVar("T")

_SLICE_MS = 1000  # one wait at the coordination service; Python signals and the pipe's end get a turn in between
_ALONE_S = 5.0  # how long a rank that failed waits for the others: they may be stuck in a collective for ever
_TELL_S = 0.5


class Reporter:
    """Tells the parent from a thread of its own how far this rank is, as long as a request is under way. It goes on
    while the main thread hangs in a collective."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._op = ""
        self._subject = ""
        self._steps = 0
        self._waiting = False
        threading.Thread(target=self._run, name="tuner-progress", daemon=True).start()

    def begin(self, op: str) -> None:
        self._op, self._subject = op, ""

    def end(self) -> None:
        self._op = ""

    def at(self, subject: str) -> None:
        """`subject` is under way now."""
        self._subject = subject

    def waits(self, waiting: bool) -> None:
        self._waiting = waiting

    def counting(self, function: Callable[..., T]) -> Callable[..., T]:
        """`function`, its calls counted as steps."""

        def counted(*args: Any, **kwargs: Any) -> T:
            self._steps += 1
            return function(*args, **kwargs)

        return counted

    def _run(self) -> None:
        while True:
            time.sleep(_TELL_S)
            if op := self._op:
                now = Progress(op=op, subject=self._subject, steps=self._steps, waiting=self._waiting)
                self._send({"progress": to_json(now)})


@dataclass
class Member:
    """One rank. `client`: of the coordination service, through which rank 0 gathers what the ranks say and hands it
    out. Every rank must agree as often as the others, in the same order."""

    rank: int
    size: int
    client: Any
    reporter: Reporter
    _count: int = 0

    def agree(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What every rank says, by rank. Waits for all, without end: the parent watches. A rank that tells of a
        failure ("failure" in `mine`) waits a few seconds only, and raises that as RankFailed."""
        name, last = f"tuner/{self._count}", f"tuner/{self._count - 1}"
        self._count += 1
        deadline = time.monotonic() + _ALONE_S if "failure" in mine else None
        self.reporter.waits(True)
        try:
            if self.rank == 0:
                rest = [self._wait(f"{name}/{rank}", mine, deadline) for rank in range(1, self.size)]
                everyone = [dict(mine), *map(json.loads, rest)]
                self.client.key_value_set(f"{name}/all", json.dumps(everyone))
                # Whoever has spoken now has read the last round's.
                self.client.key_value_delete(f"{last}/")
                return everyone
            self.client.key_value_set(f"{name}/{self.rank}", json.dumps(mine))
            found: list[dict[str, Any]] = json.loads(self._wait(f"{name}/all", mine, deadline))
            return found
        finally:
            self.reporter.waits(False)

    def anybody(self, yes: bool) -> bool:
        """Whether any rank says yes."""
        return any(said["ok"] for said in self.agreed({"ok": yes}))

    def agreed(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """As `agree`; if any rank tells of a failure, the first one's is raised on all."""
        everyone = self.agree(mine)
        for said in everyone:
            if "failure" in said:
                raise RankFailed(from_json(Failure, said["failure"]))
        return everyone

    def _wait(self, key: str, mine: Mapping[str, Any], deadline: float | None) -> str:
        while True:
            try:
                return str(self.client.blocking_key_value_get(key, _SLICE_MS))
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
            if deadline is not None and time.monotonic() > deadline:
                raise RankFailed(from_json(Failure, mine["failure"]))


def together(
    member: Member | None,
    phase: str,
    work: Callable[[], T],
    *,
    same: Callable[[T], Mapping[str, Any]] | None = None,
    apart: Callable[[T], Mapping[str, Any]] | None = None,
) -> tuple[T, list[dict[str, Any]]]:
    """Do `work` on every rank; if one rank fails, all raise RankFailed with its failure, so that none goes on alone.

    `same`: what all ranks must have in common, else the failure is DIVERGED, naming the rank and what differs. `apart`:
    what may differ; returned for each rank ([] outside a gang, where `work` is all there is).
    """
    if member is None:
        return work(), []
    try:
        result = work()
    except RankFailed:
        raise  # agreed on already
    except Exception as error:
        failure = _of_rank(failure_of(error, phase), member.rank)
        member.agreed({"failure": to_json(failure)})
        raise RankFailed(failure) from error
    mine = {"same": dict(same(result)) if same else {}, "apart": dict(apart(result)) if apart else {}}
    everyone = member.agreed(mine)
    for rank, said in enumerate(everyone):
        for key, value in said["same"].items():
            if value != everyone[0]["same"].get(key):
                what = _difference(value, everyone[0]["same"].get(key))
                message = f"rank {rank} differs from rank 0 in its {key}: {what}"
                raise RankFailed(Failure(kind=FailureClass.DIVERGED, phase=phase, message=message, rank=rank))
    return result, [said["apart"] for said in everyone]


def _of_rank(failure: Failure, rank: int) -> Failure:
    return from_json(Failure, {**to_json(failure), "rank": rank})


def _difference(value: Any, reference: Any) -> str:
    """Where two values differ, in short."""
    if isinstance(value, dict) and isinstance(reference, dict):
        name = next(n for n in sorted(value.keys() | reference.keys()) if value.get(n) != reference.get(n))
        return f"{name} is {value.get(name)!r}, there {reference.get(name)!r}"
    if isinstance(value, list) and isinstance(reference, list):
        place = next(i for i in range(max(len(value), len(reference)) + 1) if value[i : i + 1] != reference[i : i + 1])
        one, other = (entries[place] if place < len(entries) else "nothing" for entries in (value, reference))
        return f"number {place + 1} is {one}, there {other}"
    return f"{value}, there {reference}"
