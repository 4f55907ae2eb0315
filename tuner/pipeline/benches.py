"""The living sessions of a run: home, and at most one other beside it; their offset, and rounds in both by turns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Protocol

from tuner.errors import SessionEnded
from tuner.knobs import DEFAULT, Config
from tuner.machine import disturbed
from tuner.measure import BlockForm, Estimate, difference, estimate, even_forms
from tuner.pipeline.bench import CONTROL, REDO, Bench
from tuner.pipeline.context import Run
from tuner.protocol.failure import Failure
from tuner.store.events import OffsetMeasured, RoundTimed
from tuner.store.records import BaselineRecord

__all__ = ["Benches", "Timer", "Turns"]

# Alternations with the home session that an offset is estimated from, at most and at least: a quiet machine needs few
# for an interval that adds little to those of the session's candidates.
_OFFSET_ROUNDS = 12
_OFFSET_FEWEST = 4
_OFFSET_WARM_UP = 2


class Timer(Protocol):
    """Who times a round: see `Bench.round`. `control_gain`: that of the handle `CONTROL` itself."""

    @property
    def control_gain(self) -> float:
        """Over what gains are told against."""

    def round(self, stage: str, handles: Sequence[str], form: BlockForm) -> tuple[dict[str, float], dict[str, Failure]]:
        """Gains over the control, and failures."""


class Turns:
    """Rounds in a session and in the home session, one beside the other, all gains told against the home control.

    `at_home`: the handles that live there; the others live in `bench`. Which goes first alternates.
    """

    def __init__(self, bench: Bench, home: Bench, at_home: Collection[str]) -> None:
        self._bench = bench
        self._home = home
        self._at_home = frozenset(at_home)
        self._rounds = 0
        self.control_gain = bench.offset.gain if bench.offset is not None else 0.0

    def round(self, stage: str, handles: Sequence[str], form: BlockForm) -> tuple[dict[str, float], dict[str, Failure]]:
        """See `Bench.round`."""
        own = [h for h in handles if h not in self._at_home]
        guests = [h for h in handles if h in self._at_home]
        turns = [(self._bench, own, self.control_gain), (self._home, guests, 0.0)]
        self._rounds += 1
        gains: dict[str, float] = {}
        failures: dict[str, Failure] = {}
        for bench, members, extra in reversed(turns) if self._rounds % 2 == 0 else turns:
            if members:
                result, failed = bench.round(stage, members, form)
                gains |= {h: gain + extra for h, gain in result.items()}
                failures |= failed
        return gains, failures


class Benches:
    """The living benches: home, and at most one other beside it (each holds a state on the device)."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._home: Bench | None = None
        self._other: Bench | None = None

    def home(self) -> Bench:
        """The home session, started when first needed (a resumed run may need it at any stage), again if it ended."""
        if self._home is not None and self._home.session.ended is not None:
            self._home.close()
            self._home = None
        if self._home is None:
            self._home = Bench(self.run, role="home")
            self._home.open()
            self._restore_reference(self._home)
        return self._home

    def _restore_reference(self, home: Bench) -> None:
        """A run that was cut off may have lost the reference outputs; the control makes them again."""
        if "baseline" in self.run.records and not self.run.folder.reference.exists():
            saved = home.numerics(CONTROL, steps=self.run.record("baseline", BaselineRecord).numerics_steps, save=True)
            if isinstance(saved, Failure):
                raise SessionEnded(saved)

    def at(self, config: Config) -> Bench:
        """A bench whose session has the environment-lane setting `config`, with its offset measured against home."""
        if config == DEFAULT:
            return self.home()
        if self._other is not None and self._other.config == config and self._other.session.ended is None:
            return self._other
        home = self._untraced_home()
        self._drop_other()
        bench = Bench(self.run, config, home=home)
        self._other = bench
        bench.open()
        if bench.work not in (DEFAULT, config) and not self.run.folder.reference_of(bench.work).exists():
            self.at(bench.work)  # leaves behind what its results are compared with
            return self.at(config)
        bench.offset = self._measure_offset(home, bench)
        return bench

    def _untraced_home(self) -> Bench:
        """The home session for comparing its control with another session's: a new one where a profiler was attached.
        Within a session that doesn't matter, for its own control runs in every round."""
        if self._home is not None and self._home.traced:
            self._home.close()
            self._home = None
        return self.home()

    def close(self) -> None:
        """End every session."""
        self._drop_other()
        if self._home is not None:
            self._home.close()
            self._home = None

    def _drop_other(self) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None

    def _measure_offset(self, home: Bench, other: Bench) -> Estimate:
        """The two living controls against each other, once more if the machine disturbed it."""
        for _ in range(REDO + 1):
            began = self.run.sample()
            offset = self._alternate(home, other)
            ended = self.run.sample()
            if not (ended and disturbed(began, ended, self.run.calm)):
                break
        self.run.emit(OffsetMeasured(session=other.name, config=other.config, estimate=offset))
        other.name_stragglers()
        return offset

    def _alternate(self, home: Bench, other: Bench) -> Estimate:
        """Which goes first alternates too, so that a drift cancels."""
        form = self.run.record("baseline", BaselineRecord).exploring
        gains_home: list[float] = []
        gains_other: list[float] = []
        forms = {home: form, other: form}
        for index in range(_OFFSET_ROUNDS + _OFFSET_WARM_UP):
            order = (home, other) if index % 2 == 0 else (other, home)
            blocks = {bench: bench.block(CONTROL, forms[bench]) for bench in order}
            if index == _OFFSET_WARM_UP - 1:
                forms = even_forms(form, {bench: block.step_s for bench, block in blocks.items()})
            for bench in order:
                self.run.emit(RoundTimed(session=bench.name, stage="offset", control=CONTROL, blocks=(blocks[bench],)))
            if index < _OFFSET_WARM_UP:
                continue
            gains_home.append(math.log(home.value_s(blocks[home])))
            gains_other.append(math.log(other.value_s(blocks[other])))
            offset = estimate(difference(gains_home, gains_other))
            both_ways = len(gains_home) % 2 == 0
            if both_ways and len(gains_home) >= _OFFSET_FEWEST and self._told(offset):
                break
        return offset

    def _told(self, offset: Estimate) -> bool:
        """Closely enough for what its candidates gain, or that the session is certainly slower than home."""
        return offset.high - offset.low <= self.run.margin or offset.high < -self.run.margin
