"""Where the run's time goes: what is left, and what each stage may spend."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Budget"]

# How what is left after the reserve for confirm and seal is shared. A stage that ends early leaves its time to the
# later ones, since each share is of what is left when the stage begins.
_WEIGHTS = {"presets": 0.10, "screen": 0.40, "search": 0.25, "minimise": 0.25}


class Budget:
    """Seconds of one run on a clock that only moves forward. `spent_s` carries over from an interrupted run."""

    def __init__(self, total_s: float, *, clock: Callable[[], float], spent_s: float = 0.0) -> None:
        self.total_s = total_s
        self._clock = clock
        self._start = clock() - spent_s
        self.reserve_s = 0.0
        self._skipped: set[str] = set()

    def now(self) -> float:
        """The run's clock, seconds from an arbitrary zero."""
        return self._clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start

    @property
    def left_s(self) -> float:
        """Seconds left before the reserve begins; never negative."""
        return self.left_but(self.reserve_s)

    def left_but(self, kept_s: float) -> float:
        """Seconds left where so many are kept at the end; never negative."""
        return max(0.0, self.total_s - kept_s - self.elapsed_s)

    def reserve(self, seconds: float) -> None:
        """Keep `seconds` at the end for confirm and seal."""
        self.reserve_s = seconds

    def skip(self, stage: str) -> None:
        """Take `stage` out of the plan; its share goes to the others."""
        self._skipped.add(stage)

    def skips(self, stage: str) -> bool:
        return stage in self._skipped

    def share_s(self, stage: str, *more: str) -> float:
        """Seconds that `stage`, beginning now, may spend, together with `more` stages after it."""
        names = list(_WEIGHTS)
        rest = [n for n in names[names.index(stage) :] if n not in self._skipped]
        if stage not in rest:
            return 0.0
        return self.left_s * sum(_WEIGHTS[n] for n in rest if n in (stage, *more)) / sum(_WEIGHTS[n] for n in rest)
