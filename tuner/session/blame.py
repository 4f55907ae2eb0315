"""Which rank of a gang is to blame: the first to be seen dead, or to be late, may only have followed another."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import msgspec

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Progress

__all__ = ["Heard", "culprit"]

# What a rank says that ends because the coordination service told it of another's end.
_FOLLOWED = re.compile(
    r"another task died|distributed service detected fatal errors|heartbeat|coordination service|UNAVAILABLE",
    re.IGNORECASE,
)
# A living rank tells of itself twice a second.
_SILENT_S = 3.0


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rank: what it told last, for how many seconds it has been silent, how it ended."""

    progress: Progress | None
    silent_s: float
    ended: Failure | None = None


def culprit(rank: int, failure: Failure, heard: Sequence[Heard]) -> tuple[int, Failure]:
    """The rank that a gang's end is due to and its failure, `rank` having been the first that was seen to fail."""
    if failure.kind is FailureClass.TIMEOUT:
        return _late(rank, failure, heard)
    dead = {number: one.ended for number, one in enumerate(heard) if one.ended is not None}
    first = {number: ended for number, ended in dead.items() if not _followed(ended)}
    if first:
        number = rank if rank in first else min(first)
        return number, first[number]
    silent = {
        number: one.silent_s for number, one in enumerate(heard) if number not in dead and one.silent_s > _SILENT_S
    }
    if silent:
        number = max(silent, key=silent.__getitem__)
        message = f"rank {number} gave no sign of life for {silent[number]:.0f} s, until the others gave up"
        return number, dataclasses.replace(failure, kind=FailureClass.TIMEOUT, message=message, signal=None)
    return rank, failure


def _late(rank: int, failure: Failure, heard: Sequence[Heard]) -> tuple[int, Failure]:
    """Who keeps the others waiting: one that is silent, else one that doesn't wait itself and began fewest steps."""
    silent = [number for number, one in enumerate(heard) if one.silent_s > _SILENT_S]
    told = {number: one.progress for number, one in enumerate(heard) if one.progress is not None}
    busy = {number: progress.steps for number, progress in told.items() if not progress.waiting}
    if silent and len(silent) < len(heard):
        number = silent[0]
        message = f"{failure.message}; rank {number} gave no sign of life for {heard[number].silent_s:.0f} s"
    elif busy and (len(busy) < len(told) or len(set(busy.values())) > 1):
        number = min(busy, key=busy.__getitem__)
        steps = ", ".join(f"rank {n} at step {p.steps}" for n, p in told.items() if n != number)
        message = f"{failure.message}; rank {number} is behind at step {busy[number]}, {steps}"
    else:
        return rank, failure
    return number, dataclasses.replace(failure, message=message)


def _followed(failure: Failure) -> bool:
    return any(_FOLLOWED.search(text) for text in (failure.message, *failure.log_tail[-10:]))
