"""The states of a workload's steps under one roof: one step's alone, or several that are run one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tuner.worker.reference import Leaf
from tuner.worker.state import State
from tuner.worker.workload import ONLY

__all__ = ["Calls", "States"]

Calls = Mapping[str, Callable[..., Any]]
"""A candidate's function for each step, by the step's name."""


class States:
    """`parts`: each step's state by name. Outputs are those of the only step, or a dict of each step's by name.

    The states are independent: what one step makes, no other gets.
    """

    def __init__(self, parts: Mapping[str, State]) -> None:
        self.parts = dict(parts)

    def reset(self, *, nudge: int = 0, size: float = 1.0) -> None:
        """Put every state back to what the workload made; with `nudge`, moved by that draw of rounding errors."""
        for state in self.parts.values():
            state.reset(nudge=nudge, size=size)

    def placement(self) -> list[str]:
        """Where each input array of every step lives."""
        return [place for state in self.parts.values() for place in state.placement()]

    def first(self, calls: Calls) -> Any:
        """Enqueue one step of each; see `State.first`."""
        return self._each(lambda name, state: state.first(calls[name]))

    def advance(self, calls: Calls, steps: int) -> Any:
        """Enqueue `steps` steps of each; returns the last ones' outputs."""
        return self._each(lambda name, state: state.advance(calls[name], steps))

    def starts(self, out: Any, *, nudge: int = 0, size: float = 1.0) -> list[np.ndarray[Any, Any] | None]:
        """What each leaf of the outputs `out` was at first, where it takes an input's place; see `State.starts`."""
        if ONLY in self.parts:
            return self.parts[ONLY].starts(len(jax.tree.leaves(out)), nudge=nudge, size=size)
        counts = {name: len(jax.tree.leaves(out[name])) for name in sorted(out)}  # jax's own order of a dict's leaves
        return [leaf for name, n in counts.items() for leaf in self.parts[name].starts(n, nudge=nudge, size=size)]

    def inputs(self, paths: Mapping[str, Sequence[str]]) -> tuple[Leaf, ...]:
        """The initial input arrays of every step; `paths` names each step's input leaves."""
        return tuple(leaf for name, state in self.parts.items() for leaf in state.inputs(paths[name]))

    def samples(self, paths: Mapping[str, Sequence[str]]) -> tuple[Leaf, ...]:
        """Of every step's inputs; see `State.samples`."""
        return tuple(leaf for name, state in self.parts.items() for leaf in state.samples(paths[name]))

    def adopt(self, inputs: Sequence[Leaf], paths: Mapping[str, Sequence[str]]) -> None:
        """Begin from these from now on; see `State.adopt`."""
        begin = 0
        for name, state in self.parts.items():
            count = len(state.inputs(paths[name]))
            state.adopt(inputs[begin : begin + count])
            begin += count

    def lose(self) -> None:
        """Forget the live states: they will be restored at their next use."""
        for state in self.parts.values():
            state.lose()

    def settle(self, out: Any) -> bool:
        """Place the initial states as the outputs of a first step are placed; True if that changed anything."""
        changed = [state.settle(out if name == ONLY else out[name]) for name, state in self.parts.items()]
        return any(changed)

    def _each(self, run: Callable[[str, State], Any]) -> Any:
        outputs = {name: run(name, state) for name, state in self.parts.items()}
        return outputs.get(ONLY, outputs)
