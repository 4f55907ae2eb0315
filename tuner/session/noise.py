"""NoiseModel: how the time of a block varies on a machine, and the generators that make such noise."""

from __future__ import annotations

import math
import random

import msgspec

__all__ = ["ORDINARY", "NoiseModel", "OwnNoise", "SharedNoise", "heavy_tailed", "process_effect"]


class NoiseModel(msgspec.Struct, frozen=True, kw_only=True):
    """The noise of a block's log time. Every part is 0, absent, unless it is given.

    *A block's own*: `block_sd`, its standard deviation, of one that lasts `block_s` seconds or more (a shorter one of
    a share f has √f⁻¹ times as much); `block_tail`, one over the degrees of freedom of Student's t
    that it follows, scaled to `block_sd` (0: normal; below 1/2, where the variance ends); `block_memory`, its
    correlation with the block before of the same executable.

    *A process's*: `process_sd`, normal, once a process; `process_modes`, the log distance between two speeds that a
    process has with equal chance (where its memory happens to lie); `compile_sd`, once a process and code.

    *Shared by whatever runs on the machine*: `machine_sd`, a level that forgets itself within about `machine_s`
    seconds; `drift_sd`, a random walk's spread after a minute; `trend`, log time gained a minute; `stalls` a minute
    begin at random, last `stall_s` seconds and take `stall_size` of the time again (both exponential, these their
    means): what lies in such a window becomes slower by that share. `unrest`: by how much the log of `block_sd` itself
    wanders, within some ten seconds: calm spells and restless ones.

    Raises ValueError for a negative spread, a tail from 1/2 on, or a memory outside of −1 to 1.
    """

    block_sd: float = 0.0
    block_s: float = 0.0
    block_tail: float = 0.0
    block_memory: float = 0.0
    process_sd: float = 0.0
    process_modes: float = 0.0
    compile_sd: float = 0.0
    machine_sd: float = 0.0
    machine_s: float = 5.0
    drift_sd: float = 0.0
    trend: float = 0.0
    stalls: float = 0.0
    stall_s: float = 0.1
    stall_size: float = 0.5
    unrest: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or (value < 0 and name not in ("trend", "block_memory")):
                raise ValueError(f"{name} must be a number from 0 on, not {value!r}")
        if self.block_tail >= 0.5:
            raise ValueError(f"a block_tail of {self.block_tail!r} has no variance: it must be below 1/2")
        if abs(self.block_memory) >= 1:
            raise ValueError(f"a correlation lies between -1 and 1, not at {self.block_memory!r}")
        if 0 in (self.machine_s, self.stall_s):
            raise ValueError("machine_s and stall_s are durations: they can't be 0")


# Seconds within which a machine's unrest forgets itself.
_UNREST_S = 10.0

ORDINARY = NoiseModel(block_sd=0.003, block_tail=0.2, block_memory=0.2, machine_sd=0.01, machine_s=5.0)
"""A machine with ordinary manners: 0.3 % a block with heavy tails, and a level that wanders by 1 % within seconds."""


def heavy_tailed(rng: random.Random, tail: float) -> float:
    """A draw from Student's t with 1/`tail` degrees of freedom, scaled to variance 1; a normal one for `tail` 0."""
    normal = rng.gauss(0.0, 1.0)
    if not tail:
        return normal
    degrees = 1 / tail
    return normal * math.sqrt((degrees - 2) / rng.gammavariate(degrees / 2, 2.0))


def process_effect(rng: random.Random, model: NoiseModel) -> float:
    """What one process adds to the log time of all its blocks."""
    mode = model.process_modes * (rng.random() - 0.5 > 0) - model.process_modes / 2
    return model.process_sd * rng.gauss(0.0, 1.0) + mode


class OwnNoise:
    """What each block of one executable adds of its own: a stationary first-order autoregression."""

    def __init__(self, rng: random.Random, model: NoiseModel) -> None:
        self._rng = rng
        self._model = model
        self._fresh = math.sqrt(1.0 - model.block_memory**2)
        self._value = heavy_tailed(rng, model.block_tail)

    def next(self, seconds: float) -> float:
        """That of the next block, which lasts so long."""
        model = self._model
        self._value = model.block_memory * self._value + self._fresh * heavy_tailed(self._rng, model.block_tail)
        return model.block_sd * math.sqrt(max(1.0, model.block_s / seconds)) * self._value


class SharedNoise:
    """What the machine does to everything on it, as a function of time: sessions alive together see the same.

    Time only moves forward: `over` may not be asked about what lies before its last `start_s`.
    """

    def __init__(self, rng: random.Random, model: NoiseModel) -> None:
        self._rng = rng
        self._model = model
        self._now = 0.0
        self._level = rng.gauss(0.0, 1.0)
        self._walk = 0.0
        self._unrest = rng.gauss(0.0, 1.0) if model.unrest else 0.0
        self._stall = (0.0, 0.0, 0.0)  # begin, end, share of extra time
        self._next_stall()

    def over(self, start_s: float, seconds: float) -> float:
        """Log time that is added to what would take `seconds` from `start_s` on."""
        model = self._model
        gap = start_s - self._now
        self._now = start_s
        if gap > 0 and model.machine_sd:
            self._level = self._later(self._level, gap / model.machine_s)
        if gap > 0 and model.unrest:
            self._unrest = self._later(self._unrest, gap / _UNREST_S)
        if gap > 0 and model.drift_sd:
            self._walk += model.drift_sd * math.sqrt(gap / 60.0) * self._rng.gauss(0.0, 1.0)
        level = model.machine_sd * self._level + self._walk + model.trend * start_s / 60.0
        return level + math.log1p(self._stalled(start_s, seconds)) if model.stalls else level

    def unrest(self) -> float:
        """What a block's own noise is multiplied by at the moment that `over` was asked about last."""
        return math.exp(self._model.unrest * self._unrest)

    def _later(self, value: float, gap: float) -> float:
        """A standard normal value after a gap in units of the time within which it forgets itself."""
        kept = math.exp(-gap)
        return kept * value + math.sqrt(1 - kept**2) * self._rng.gauss(0.0, 1.0)

    def _stalled(self, start_s: float, seconds: float) -> float:
        """Share of extra time that stalls cost."""
        extra, end_s = 0.0, start_s + seconds
        while True:
            begin, end, size = self._stall
            extra += size * max(0.0, min(end, end_s) - max(begin, start_s))
            if end > end_s:
                return extra / seconds
            self._next_stall()

    def _next_stall(self) -> None:
        model = self._model
        if model.stalls:
            begin = self._stall[1] + self._rng.expovariate(model.stalls / 60.0)
            end = begin + self._rng.expovariate(1 / model.stall_s)
            self._stall = (begin, end, model.stall_size * self._rng.expovariate(1.0))
