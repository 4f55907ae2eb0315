"""Times a script's jitted functions from inside their calls and picks the one to tune."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Recompiled
from tuner.worker.capture import Jitted
from tuner.worker.failures import Refused
from tuner.worker.internals import under_trace
from tuner.worker.others import Other, stood_in
from tuner.worker.places import Places, user_line
from tuner.worker.saved import put_back, saved
from tuner.worker.signatures import Shape, Signatures, home_of, shape_of
from tuner.worker.step import Step, make_step
from tuner.worker.wait import wait

__all__ = ["HotCall", "Watch"]

_CALLS = 3  # calls of a function that feeds its outputs back into itself, before it can be taken over
_UNTHREADED_CALLS = 10  # calls of one that doesn't: preparing data looks like that too
_SHARE = 0.5  # of the time spent in its rivals and itself, first calls (compilation) not counted
_STEP_SHARE = 0.1  # of the time spent in all jitted functions: below it, not even a function that feeds itself counts
_KEPT_CALLS = 2  # first calls of a function whose arguments are kept
_KEPT_FUNCTIONS = 4  # functions whose arguments are kept: they hold device memory


@dataclass(frozen=True)
class HotCall:
    """A call to tune. `threaded`: (input leaf, output leaf of the call before) that were the same arrays. `others`:
    what else was called, by name. `recompiled`: what was compiled again and again until then."""

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    threaded: tuple[tuple[int, int], ...]
    others: Mapping[str, Other]
    recompiled: tuple[Recompiled, ...]


@dataclass(eq=False)
class _Record:
    """One function at one signature. `seconds` leaves out the first call.

    `kept`: the leaves of an early call, donated ones copied, for scripts that end before anything is hot. `mute`: it
    returns no array, so that there is nothing to wait for or to compare.
    """

    jitted: Jitted
    step: Step
    shape: Shape
    signatures: Signatures
    calls: int = 0
    first_s: float = 0.0
    seconds: float = 0.0
    outputs: list[weakref.ref[Any]] = field(default_factory=list)
    threaded: tuple[tuple[int, int], ...] = ()
    kept: list[Any] | None = None
    mute: bool = False


class Watch:
    """Sees every call of a jitted function that is not under a trace. `take` never returns."""

    def __init__(self, take: Callable[[HotCall], NoReturn], places: Places) -> None:
        self._take = take
        self._places = places
        self._signatures: dict[Any, Signatures] = {}
        self._calls = 0
        self._records: dict[Any, _Record] = {}
        self._made = 0
        self._mapped = False
        self._lowered = False
        self.taken = False

    def made(self) -> None:
        self._made += 1

    def mapped(self) -> None:
        self._mapped = True

    def lowered(self) -> None:
        self._lowered = True

    def called(self, jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call; take over instead if this is the function to tune."""
        record = None if self.taken or under_trace() else self._record(jitted, args, kwargs)
        if record is None or record.mute:
            return jitted.function(*args, **kwargs)
        leaves = record.step.inputs.leaves(args, kwargs)
        record.threaded = _same_arrays(leaves, record.outputs)
        if self._is_hot(record):
            self.taken = True
            self._take(self._hot(record, leaves, args, kwargs))
        if record.calls < _KEPT_CALLS:
            record.kept = _kept(record.step, leaves)
        compiled, start = self._places.here(), time.perf_counter()
        out = wait(jitted.function(*args, **kwargs))
        seconds = time.perf_counter() - start
        record.signatures.called(
            record.shape,
            number=self._calls,
            first=record.calls == 0,
            seconds=self._places.here() - compiled,
            where=user_line(sys._getframe(1)) if record.calls == 0 else "",
        )
        self._calls += 1
        if record.calls == 0:
            record.first_s = seconds
        else:
            record.seconds += seconds
        record.calls += 1
        record.outputs = [weakref.ref(leaf) for leaf in jax.tree.leaves(out)]
        if not record.outputs:
            record.mute, record.kept = True, None
        for cooler in self._with_arguments()[_KEPT_FUNCTIONS:]:
            cooler.kept = None
        return out

    def hottest_kept(self, script: str) -> HotCall:
        """For a script that has ended: its hottest function with the arguments of an early call.

        Raises Refused(WORKLOAD) if it called nothing that it jitted.
        """
        records = self._with_arguments()
        if not records:
            raise Refused(FailureClass.WORKLOAD, f"{script} has neither build() nor anything jitted{self._why()}")
        record = records[0]
        self.taken = True
        leaves = put_back(record.kept or ())
        args, kwargs = record.step.inputs.call(leaves)
        return self._hot(record, leaves, args, kwargs)

    def _hot(self, record: _Record, leaves: list[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> HotCall:
        return HotCall(
            record.jitted.function,
            args,
            kwargs,
            record.threaded,
            self._others(record, leaves),
            self._recompiled(record),
        )

    def _recompiled(self, hot: _Record) -> tuple[Recompiled, ...]:
        """What was called with several shapes or jitted several times, and what else was compiled often."""
        since = hot.signatures.new[0][1]
        tuned = ", ".join(f"{path} {kind}" for path, kind in hot.shape.leaves if path in hot.signatures.varied)
        found = [
            one.told(step=one is hot.signatures, tuned=tuned if one is hot.signatures else "", since=since)
            for one in self._signatures.values()
            if len(one.new) > 1
        ]
        known = {(one.name, one.where) for one in found}
        return (*found, *(one for one in self._places.since({}) if (one.name, one.where) not in known))

    def _others(self, hot: _Record, leaves: list[Any]) -> dict[str, Other]:
        """The other functions that were called, as far as arrays for them are left. `leaves`: the hot call's inputs."""
        found: dict[str, Other] = {}
        for record in self._with_arguments():
            inputs = stood_in(record.kept or [], leaves)
            if record is hot or inputs is None:
                continue
            name, count = record.step.name, sum(n.partition("#")[0] == record.step.name for n in found)
            found[f"{name}#{count + 1}" if count else name] = Other(record.step, inputs)
        return found

    def _why(self) -> str:
        if self._mapped:
            return " that it calls: what jax.pmap maps can't be tuned, jit it over a mesh (jax.shard_map, or shardings)"
        if self._lowered:
            return " that it calls: functions compiled ahead of time can't be tuned, call the jitted function itself"
        if any(record.mute for record in self._records.values()):
            return " that it calls and that returns an array: XLA leaves out what nobody gets; return what is computed"
        made = f"{self._made} function{'' if self._made == 1 else 's'}"
        return f" that it calls, though it jits {made}" if self._made else ""

    def _record(self, jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Record | None:
        """The record of this call's signature; None for a call that can't be tuned."""
        try:
            step = make_step(jitted.function, args, kwargs)
        except Refused:
            return None
        leaves = step.inputs.leaves(args, kwargs)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return None
        types = [str(jax.typeof(leaf)) for leaf in leaves]
        statics = (*sorted(step.inputs.static_args.items()), *sorted(step.inputs.static_kwargs.items()))
        signature = (id(jitted), statics, step.inputs.tree, *types)
        if signature not in self._records:
            own = self._signatures.setdefault(home_of(step, jitted), Signatures(step.name))
            self._records[signature] = _Record(jitted, step, shape_of(step, types), own)
        return self._records[signature]

    def _with_arguments(self) -> list[_Record]:
        """Records with kept arguments, those that feed themselves first, then by heat."""
        records = [record for record in self._records.values() if record.kept is not None]
        return sorted(records, key=lambda r: (bool(r.threaded), r.seconds, r.first_s), reverse=True)

    def _is_hot(self, record: _Record) -> bool:
        """A function that feeds itself is what a program steps: it competes with its like. One that doesn't feed itself
        (inference, or preparing data) must be hotter than everything else together, for longer."""
        total = sum(r.seconds for r in self._records.values())
        stepping = [r for r in self._records.values() if r.threaded and r.seconds > _STEP_SHARE * total]
        if record.threaded:
            rivals = sum(r.seconds for r in stepping)
            return record.calls >= _CALLS and record in stepping and record.seconds > _SHARE * rivals
        return record.calls >= _UNTHREADED_CALLS and not stepping and record.seconds > _SHARE * total


def _same_arrays(leaves: list[Any], outputs: list[weakref.ref[Any]]) -> tuple[tuple[int, int], ...]:
    """Input leaves that *are* outputs of the call before. Identity, not shape: other functions may come in between."""
    places = {id(array): j for j, ref in enumerate(outputs) if (array := ref()) is not None}
    return tuple((i, places[id(leaf)]) for i, leaf in enumerate(leaves) if id(leaf) in places)


def _kept(step: Step, leaves: list[Any]) -> list[Any]:
    copied = [i for i, leaf in enumerate(leaves) if i in step.donated and isinstance(leaf, jax.Array)]
    kept: dict[int, Any] = dict(zip(copied, saved([leaves[i] for i in copied]), strict=True))
    return [kept.get(i, leaf) for i, leaf in enumerate(leaves)]
