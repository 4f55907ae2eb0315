"""What a worker holds between requests: the step, its state, and the compiled candidates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Compiled
from tuner.worker import internals
from tuner.worker.events import CompileEvents
from tuner.worker.failures import Refused
from tuner.worker.programs import Programs
from tuner.worker.states import Calls, States
from tuner.worker.step import Step

if TYPE_CHECKING:
    from tuner.worker.gang import Member
    from tuner.worker.reference import Reference, Writing

__all__ = ["Candidate", "Part", "WorkerSession"]


@dataclass(frozen=True)
class Part:
    """One step of the workload. `weight`: how often a unit of work runs it.

    `bases`: one function object for each set of configuration values, the empty set's shared by almost everything.
    Values change the trace, and jitted functions of one base with equal options share what jax caches for them: with a
    base for two sets, releasing one candidate would take away the other's executable.
    """

    name: str
    step: Step
    weight: float
    bases: dict[tuple[str, ...], Callable[..., Any]]


@dataclass(frozen=True)
class Candidate:
    """A compiled variant, by step. `jitted` and `compiled` share one executable; `jitted` is what gets called, as in
    production, through `call`.

    `key`: everything that makes the executables. `result`: what the compile request says about them, but for the id.
    """

    key: tuple[str, ...]
    jitted: Mapping[str, Any]
    compiled: Mapping[str, Any]
    call: Calls
    jax_config: Mapping[str, Any]
    result: Compiled

    @contextlib.contextmanager
    def configured(self) -> Iterator[None]:
        """The candidate's configuration values hold for this thread. Entered once a block: never per step."""
        with configured(self.jax_config):
            yield

    def clear(self) -> None:
        """Let go of the executables: jax's caches hold them for as long as the base functions live."""
        for jitted in self.jitted.values():
            jitted.clear_cache()


@dataclass
class WorkerSession:
    """`parts`: the workload's steps, mostly one. `state`: theirs. `settled`: the state is placed as the steps' own
    outputs are (see `State.settle`).

    `references`: the reference outputs last read here, by their file's stamp. `writing`: those last made here.
    `programs`: the worker's own, that compare them.
    `adopts`: inputs may differ from process to process (a script's own steps made them), so that a reference brings
    its own. `gang`: set where the steps run over several processes. `others`: the program's other functions by name,
    each with what opens it; `opened`: those that are.
    """

    parts: tuple[Part, ...]
    state: States
    check: Callable[[Any, Any], Any] | None
    events: CompileEvents
    candidates: dict[str, Candidate] = field(default_factory=dict)
    references: dict[tuple[str, int, int], Reference] = field(default_factory=dict)
    writing: Writing | None = None
    programs: Programs = field(default_factory=Programs)
    settled: bool = False
    adopts: bool = False
    gang: Member | None = None
    others: Mapping[str, Callable[[], WorkerSession]] = field(default_factory=dict)
    opened: dict[str, WorkerSession] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        return str(jax.default_backend())

    @property
    def part(self) -> tuple[int, int]:
        """This process's rank, of how many."""
        return (0, 1) if self.gang is None else (self.gang.rank, self.gang.size)

    def twin(self, key: tuple[str, ...]) -> Candidate | None:
        """A living candidate with the same settings. It is used again, not compiled again: two jitted functions with
        equal options share what jax caches, and clearing one would take the executable from the other."""
        return next((candidate for candidate in self.candidates.values() if candidate.key == key), None)

    def quiet(self) -> None:
        """Nothing of the worker's own goes on in the background when this returns."""
        if self.writing is not None:
            self.writing.done()
        for other in self.opened.values():
            other.quiet()

    def function(self, name: str) -> WorkerSession:
        """The session of another function, "" for this one; the others' live states make room. Raises Refused(PROTOCOL)
        if there is no such function."""
        for one, other in self.opened.items():
            if one != name:
                other.state.lose()
        if not name:
            return self
        self.state.lose()
        if name not in self.opened:
            if name not in self.others:
                raise Refused(FailureClass.PROTOCOL, f"the program has no other function {name!r}")
            self.opened[name] = self.others[name]()
            self.opened[name].gang = self.gang
        return self.opened[name]

    def candidate(self, handle: str) -> Candidate:
        """The candidate compiled under `handle`. Raises Refused(PROTOCOL) if there is none."""
        try:
            return self.candidates[handle]
        except KeyError:
            raise Refused(FailureClass.PROTOCOL, f"nothing is compiled under the id {handle!r}") from None


@contextlib.contextmanager
def configured(values: Mapping[str, Any]) -> Iterator[None]:
    """jax configuration `values` hold for this thread."""
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(internals.config_context(name, value))
        yield


def config_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the types that jax's options have: texts become booleans and numbers where the option is one.

    Raises Refused: UNSUPPORTED for an unknown option or one that can't change in a living process, BAD_VALUE.
    """
    known = jax.config.values
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise Refused(FailureClass.UNSUPPORTED, f"No such jax configuration option: {name!r}")
        result[name] = _typed(name, value, known[name])
        try:
            internals.config_context(name, result[name])
        except NotImplementedError:
            message = f"jax option {name} belongs to the whole process: it can't change between candidates"
            raise Refused(FailureClass.UNSUPPORTED, message) from None
        except (TypeError, ValueError) as error:
            raise Refused(FailureClass.BAD_VALUE, f"{name}={value!r}: {str(error).splitlines()[0]}") from error
    return result


def _typed(name: str, value: Any, current: Any) -> Any:
    """`value` as the type of `current`, the value the option has now."""
    try:
        if isinstance(current, bool):
            if isinstance(value, str):
                return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
            return bool(value)
        if isinstance(current, (int, float)) and isinstance(value, str):
            return type(current)(value)
    except (KeyError, ValueError):
        raise Refused(FailureClass.BAD_VALUE, f"{name}={value!r} is not a {type(current).__name__}") from None
    return value
