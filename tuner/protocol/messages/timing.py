"""Rounds of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.protocol.failure import Failure

__all__ = ["Arm", "Block", "Round", "RoundReply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A candidate to be timed for `steps` consecutive steps, after `warm_up` discarded ones.

    `quantile`: time each step by itself, to its last output, and tell this quantile of the times (0.99). Of several
    steps each runs `steps` times then; otherwise the one with the largest weight does, the others in proportion.
    `opening`: discarded steps before all that, of several in the same proportion; each is warmed up all the same.
    """

    id: str
    steps: int
    warm_up: int = 1
    quantile: float | None = None
    opening: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Time the arms in the given order. `reset`: restore the state from its host copy first."""

    arms: tuple[Arm, ...]
    reset: bool = True
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`steps` steps took `seconds`, until every output leaf was ready; `first_s`: the discarded ones before them.

    `value_s`: what was asked for where that isn't seconds / steps: the quantile of the steps' times, or, over several
    steps, the sum of their times by weight. `parts`: each step's own time (or quantile) where there are several.
    `ranks_s`: of a gang, what each rank says of a step; the rest of the block is the slowest rank's. `reset_s`: what
    putting the state back took before a round's first block.
    """

    id: str
    steps: int
    seconds: float
    first_s: float
    value_s: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    ranks_s: tuple[float, ...] = ()
    reset_s: float = 0.0

    @property
    def step_s(self) -> float:
        """What the block says of a step: its mean time, the quantile, or the weighted sum."""
        return self.seconds / self.steps if self.value_s is None else self.value_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReply:
    """One entry an arm, in the order timed."""

    blocks: tuple[Block | Failure, ...]
