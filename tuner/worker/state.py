"""The live state of a session: one set of inputs that threads through every candidate's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.protocol.failure import FailureClass
from tuner.worker import carry, shards
from tuner.worker.failures import Refused
from tuner.worker.nudge import nudged
from tuner.worker.reference import Leaf
from tuner.worker.saved import Saved, as_array, restored, saved
from tuner.worker.step import Inputs
from tuner.worker.wait import wait

__all__ = ["State"]

_SAMPLES = 64  # values of an input

_Call = tuple[tuple[Any, ...], dict[str, Any]]


class State:
    """Inputs on the device, threaded through steps and put back from a host copy.

    There is one state for all candidates: a card is seldom large enough for two. Whatever happens to it (a step that
    failed after its inputs were donated), `reset` brings it back.
    """

    def __init__(self, inputs: Inputs, leaves: list[Any], threading: carry.Carry, *, grain: float = 0.0) -> None:
        """`leaves`: the initial inputs. They become the live state, so that there is no second copy on the device.
        `grain`: see `nudged`."""
        self._inputs = inputs
        self._carry = threading
        self._carried = frozenset(source for source, _ in threading.pairs)
        leaves = [as_array(leaf) if i in self._carried else leaf for i, leaf in enumerate(leaves)]
        # Leaves that are no jax arrays stay what they are: the workload hands them over anew at every step.
        arrays = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}
        self._copies: dict[int, Saved] = dict(zip(arrays, saved(list(arrays.values())), strict=True))
        self._originals = [None if i in self._copies else leaf for i, leaf in enumerate(leaves)]
        self._call: _Call | None = inputs.call(leaves)
        self._nudged = (0, 1.0)
        self._displaced: dict[int, Saved] = {}  # the copies as the present nudge moved them
        self._grain = grain
        self._spent: dict[int, jax.Array] = {}
        self._stepped = False

    def reset(self, *, nudge: int = 0, size: float = 1.0) -> None:
        """Put the state back to what the workload made; with `nudge`, moved by that random draw of rounding errors,
        `size` times as large. Waits until it is there."""
        leaves: list[Any] = [None] * len(self._originals)
        moved = (nudge, size)
        if self._call is not None and not (nudge or self._nudged[0]):
            leaves = self._inputs.leaves(*self._call)
            again: Iterable[int] = self._carried | self._spent.keys()
            for i in again:
                leaves[i] = None  # gone before its successor comes
        else:
            again = range(len(leaves))
        self._call = None
        if moved != self._nudged:
            self._displaced = {}
        self._nudged = moved
        again = list(again)
        for i, leaf in zip(again, self._initial(again, moved), strict=True):
            leaves[i] = leaf
        for i in self._spent:
            self._spent[i] = leaves[i]
        wait([leaf for leaf in leaves if isinstance(leaf, jax.Array)])
        self._call = self._inputs.call(leaves)

    def copy_of(self, i: int) -> Saved | None:
        """The host copy of input leaf `i`; None if that is no jax array."""
        return self._copies.get(i)

    def inputs(self, paths: Sequence[str]) -> tuple[Leaf, ...]:
        """The initial inputs, what is handed over as a NumPy array or a Python scalar too; `paths` names each."""
        return tuple(
            Leaf(path, str(own.dtype), own, copy.key_impl if (copy := self._copies.get(i)) else None)
            for i, (path, own) in enumerate(zip(paths, map(self._values, range(len(self._originals))), strict=True))
        )

    def samples(self, paths: Sequence[str]) -> tuple[Leaf, ...]:
        """A few values of each initial input, by which another process knows whether it has the same ones."""
        return tuple(replace(leaf, data=_sample(leaf.data)) for leaf in self.inputs(paths))

    def adopt(self, inputs: Sequence[Leaf]) -> None:
        """Begin from these inputs, those of another process, from now on. Raises Refused(WRONG_RESULT) if they are of
        other shapes or dtypes."""
        if len(inputs) != len(self._originals):
            raise Refused(FailureClass.WRONG_RESULT, "the inputs are others than those of the reference")
        for i, leaf in enumerate(inputs):
            own, copy = self._values(i), self._copies.get(i)
            if leaf.data is own:
                continue
            if copy is not None and copy.spread is not None and leaf.data.shape == copy.spread:
                leaf = replace(leaf, data=shards.cut(leaf.data, copy.sharding))
            if (leaf.data.shape, leaf.data.dtype) != (own.shape, own.dtype):
                message = f"{leaf.path} is {own.dtype}{own.shape}, for the reference {leaf.dtype}{leaf.data.shape}"
                raise Refused(FailureClass.WRONG_RESULT, message)
            if copy is not None:
                self._copies[i] = replace(copy, data=leaf.data)
            elif np.array_equal(leaf.data, own, equal_nan=jnp.issubdtype(own.dtype, jnp.inexact)):
                continue
            else:
                self._originals[i] = _in_place_of(self._originals[i], leaf.data)
            self.lose()

    def call(self) -> _Call:
        """The arguments (args, kwargs) of the next step, restored if they were lost."""
        if self._call is None:
            self.reset()
        assert self._call is not None
        return self._call

    def placement(self) -> list[str]:
        """Where each input array lives, as text: its sharding, or "" if it is not committed to a device."""
        return ["" if copy.sharding is None else str(copy.sharding) for copy in self._copies.values()]

    def first(self, function: Callable[..., Any]) -> Any:
        """Enqueue one step of `function`; returns its outputs. The first step of a session also finds out which inputs
        the step donates without giving them back; these are copied before every later step."""
        watched = [] if self._stepped else self._uncarried()
        out = self.advance(function, 1)
        if not self._stepped:
            spent = [i for i, array in watched if array.is_deleted()]
            self._spent = dict(zip(spent, self._initial(spent, self._nudged), strict=True))
            self._stepped = True
        return out

    def advance(self, function: Callable[..., Any], steps: int) -> Any:
        """Enqueue `steps` steps of `function`; returns the last one's outputs. If it raises, the state is lost and will
        be restored at the next use."""
        self.call()
        out, self._call = carry.run(
            self._carry,
            function,
            call=self._take(),
            steps=steps,
            inputs=self._inputs,
            fresh=self._fresh if self._spent else None,
        )
        return out

    def lose(self) -> None:
        """Forget the live state, e.g. because an asynchronous step failed; it will be restored at the next use."""
        self._call = None
        self._displaced = {}

    def settle(self, out: Any) -> bool:
        """Place the initial state as the outputs `out` of a first step are placed, and say whether that changed
        anything. A step whose outputs differ from its inputs in sharding, commitment or weak type compiles a second
        time on its second call; production runs that second executable, so it is the one to tune."""
        results = jax.tree.leaves(out)
        changed = False
        for source, target in self._carry.pairs:
            copy = self._copies[source]
            new = copy.placed_like(results[target])
            if not _same_place(copy, new, results[target].ndim):
                self._copies[source] = new
                changed = True
        if changed:
            self.lose()
        return changed

    def _values(self, i: int) -> np.ndarray[Any, Any]:
        """Input leaf `i` as it is at first, on the host."""
        return self._copies[i].data if i in self._copies else np.asarray(self._originals[i])

    def _take(self) -> _Call:
        call, self._call = self._call, None
        assert call is not None
        return call

    def _uncarried(self) -> list[tuple[int, jax.Array]]:
        leaves = self._inputs.leaves(*self.call())
        return [(i, x) for i, x in enumerate(leaves) if i not in self._carried and isinstance(x, jax.Array)]

    def _fresh(self) -> list[tuple[int, jax.Array]]:
        return [(i, _copy(array)) for i, array in self._spent.items()]

    def starts(self, count: int, *, nudge: int = 0, size: float = 1.0) -> list[np.ndarray[Any, Any] | None]:
        """For each of `count` output leaves: what the input leaf that it replaces was at first; None for the others."""
        sources = {target: source for source, target in self._carry.pairs}
        moved = (nudge, size)
        return [self._host(sources[i], moved).data if i in sources else None for i in range(count)]

    def elsewhere(self, function: Callable[[list[Any]], list[Any]], steps: int) -> Iterator[list[Any]]:
        """The output leaves of each of `steps` steps of `function` (input leaves to output leaves) from the initial
        state, as functions that don't share the live state's dtypes need it. The live state is lost."""
        self.lose()
        leaves = self._initial(range(len(self._originals)), (0, 1.0))
        for _ in range(steps):
            results = function(leaves)
            for source, target in self._carry.pairs:
                leaves[source] = results[target]
            yield results

    def _initial(self, which: Sequence[int], moved: tuple[int, float]) -> list[Any]:
        """These input leaves as they are at first, moved by that nudge."""
        arrays = iter(restored([self._host(i, moved) for i in which if i in self._copies]))
        return [next(arrays) if i in self._copies else self._original(i, moved) for i in which]

    def _original(self, i: int, moved: tuple[int, float]) -> Any:
        nudge, size = moved
        return _nudged_host(self._originals[i], (nudge, i), self._grain, size) if nudge else self._originals[i]

    def _host(self, i: int, moved: tuple[int, float]) -> Saved:
        """The host copy of input leaf `i`, moved by that nudge. What is moved by the present one is kept until that
        is over: a comparison needs it again to take the nudge off."""
        copy, (nudge, size) = self._copies[i], moved
        if not nudge or copy.key_impl is not None:
            return copy
        if moved == self._nudged and i in self._displaced:
            return self._displaced[i]
        values = nudged(copy.data, (nudge, i), grain=self._grain, size=size)
        displaced = replace(copy, data=values)
        if moved == self._nudged:
            self._displaced[i] = displaced
        return displaced


def _sample(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = values.reshape(-1)
    return np.array(flat[:: max(1, flat.size // _SAMPLES)][:_SAMPLES])


def _in_place_of(leaf: Any, values: np.ndarray[Any, Any]) -> Any:
    """`values` as what `leaf` is: a NumPy array in memory of its own, a NumPy scalar or a Python one. An array that is
    read from a file lies as no array of the workload does, and would reach the device another way."""
    if isinstance(leaf, np.ndarray):
        return np.array(values)
    return values[()] if isinstance(leaf, np.generic) else values.item()


def _nudged_host(leaf: Any, seed: Sequence[int], grain: float, size: float) -> Any:
    """A NumPy array or Python scalar, moved in the precision in which it reaches the step."""
    values = nudged(np.asarray(leaf, jax.typeof(leaf).dtype), seed, grain=grain, size=size)
    return values if isinstance(leaf, (np.ndarray, np.generic)) else values.item()


def _same_place(one: Saved, other: Saved, ndim: int) -> bool:
    if one.weak != other.weak or (one.sharding is None) != (other.sharding is None):
        return False
    return one.sharding is None or bool(one.sharding.is_equivalent_to(other.sharding, ndim))


_copy = jax.jit(jnp.copy)
