"""The objective: what of a step's time a run makes small, in which unit, and how a block is timed for it."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from tuner.protocol.messages import Arm, Block

__all__ = ["OBJECTIVES", "BlockForm", "Objective", "ObjectiveName"]

ObjectiveName = Literal["mean", "p50", "p99", "throughput"]

OBJECTIVES: tuple[str, ...] = get_args(ObjectiveName)
"""mean: seconds a step, in blocks of consecutive steps · p50, p99: a quantile of the steps' times, each timed by
itself · throughput: seconds a unit of the work that the workload declares."""

_QUANTILES = {"p50": 0.5, "p99": 0.99}


class BlockForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a block is timed; the fields mean what `Arm`'s do. `opening`: that of a round's first block, see
    `tuner.measure.opens_apart`; no other block has one."""

    steps: int
    warm_up: int = 1
    quantile: float | None = None
    opening: int = 0

    def arm(self, handle: str) -> Arm:
        """The request for a block of `handle`."""
        return Arm(id=handle, steps=self.steps, warm_up=self.warm_up, quantile=self.quantile)

    @property
    def all_steps(self) -> int:
        """Steps that a block runs, the discarded ones among them."""
        return self.steps + self.warm_up


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a run makes small. `weights`: of a workload of several steps, how often a unit of work runs each.

    A *value* is in seconds, or milliseconds where the name says ms, of what `per` names. Smaller is better for every
    objective, so a gain is −log of a ratio of values.
    """

    name: ObjectiveName = "mean"
    weights: dict[str, float] = {}

    @property
    def quantile(self) -> float | None:
        """The quantile of single steps' times that is asked for; None for mean times."""
        return _QUANTILES.get(self.name)

    @property
    def per(self) -> str:
        """What a value is the time of: what to write behind "12.5 ms"."""
        if self.name == "throughput":
            return "a unit of work"
        steps = " + ".join(f"{weight:g} {name}" for name, weight in self.weights.items())
        whole = f"for {steps}" if steps else "a step"
        return whole if self.quantile is None else f"{whole} at {self.name}"

    def value_s(self, block: Block, *, work: float = 1.0) -> float:
        """What a block says of its arm. `work`: units of work that a step does in that session."""
        return block.step_s / work if self.name == "throughput" else block.step_s
