"""Opens a session: the platform, the steps that the workload handed over, and their state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from tuner.protocol.failure import FailureClass
from tuner.worker import carry, internals
from tuner.worker import others as others_of
from tuner.worker.events import CompileEvents
from tuner.worker.failures import Refused, first_line
from tuner.worker.jaxprs import grain_of
from tuner.worker.others import Other, other_of
from tuner.worker.saved import Saved
from tuner.worker.session import Part, WorkerSession
from tuner.worker.state import State
from tuner.worker.states import States
from tuner.worker.step import Step, make_step
from tuner.worker.workload import ONLY, Given, Workload, workload_of

__all__ = ["Opened", "OpenedStep", "check_platform", "open_build", "open_call", "prepare"]


@dataclass(frozen=True)
class OpenedStep:
    """What only the reply to Load tells of one step. `leaves`: its initial inputs; not to be kept."""

    step: Step
    leaves: list[Any]
    carry: carry.Carry
    out_paths: tuple[str, ...]


@dataclass(frozen=True)
class Opened:
    """A session with what only the reply to Load tells. `steps`: by name; not to be kept. `notices`: about all."""

    session: WorkerSession
    workload: Workload
    steps: Mapping[str, OpenedStep]
    notices: tuple[str, ...] = ()


_AUTO_PGLE = (
    "the workload switches jax_enable_pgle on itself: off while it is tuned, for it would recompile timed steps"
)


def prepare(platform: str | None) -> tuple[internals.BackendStart, CompileEvents]:
    """Call right after jax is imported, before any device is touched: asks jax for the wanted platform, and listens to
    what is compiled from here on."""
    wanted = str(jax.config.values["jax_platforms"] or "").split(",")
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    elif platform is not None and wanted[0] == "cpu":
        # An inherited JAX_PLATFORMS=cpu would hide what was asked for.
        jax.config.update("jax_platforms", "")  # type: ignore[no-untyped-call]
    return internals.watch_backend_start(), CompileEvents()


def check_platform(platform: str | None) -> None:
    """Start the devices. Raises Refused(PLATFORM) if they are not of the wanted platform ("gpu": CUDA or ROCm)."""
    try:
        found = jax.default_backend()
        kind = jax.devices()[0].client.platform_version
    except RuntimeError as error:
        raise Refused(FailureClass.PLATFORM, f"no device could be started: {first_line(error)}") from error
    if platform is None or platform == found or (found == "gpu" and platform.lower() in kind.lower()):
        return
    kin = ("cuda", "rocm") if platform == "gpu" else (platform,)
    reasons = [f"{name}: {reason}" for name, reason in internals.backend_errors().items() if name in kin]
    message = f"wanted platform {platform}, but jax {jax.__version__} found {found} devices only"
    raise Refused(FailureClass.PLATFORM, "; ".join([message, *reasons]))


def open_build(returned: Any, events: CompileEvents) -> Opened:
    """A session from what `build` returned. Raises Refused(WORKLOAD) if it can't be stepped."""

    def threading(given: Given, step: Step, arguments: tuple[Any, ...], out: Any) -> carry.Carry:
        if given.carry is not None:
            return carry.counted(arguments, out, given.carry)
        return carry.detected(arguments, out, donated=step.donated)

    workload = workload_of(returned)
    others = {}
    for name, (function, args) in workload.others.items():
        try:
            others[name] = other_of(function, args)
        except Refused as error:
            raise Refused(error.kind, f"others[{name!r}]: {error}") from error
    return _open(workload, threading, others, events)


def open_call(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    seen: Sequence[tuple[int, int]],
    others: Mapping[str, Other],
    events: CompileEvents,
) -> Opened:
    """A session from one call in a running script. `seen`: (input leaf, output leaf) pairs that its calls threaded;
    without any, shapes decide. `others`: what else it jitted and called."""

    def threading(_given: Given, step: Step, arguments: tuple[Any, ...], out: Any) -> carry.Carry:
        return carry.paired(arguments, out, seen) if seen else carry.detected(arguments, out, donated=step.donated)

    opened = _open(Workload({ONLY: Given(function, args, kwargs)}), threading, others, events)
    opened.session.adopts = True  # the script's own steps made its inputs, under the settings of this process
    return opened


def _open(
    workload: Workload,
    threading: Callable[[Given, Step, tuple[Any, ...], Any], carry.Carry],
    others: Mapping[str, Other],
    events: CompileEvents,
) -> Opened:
    parts, states, steps = [], {}, {}
    copies: dict[int, Saved] = {}
    for name, given in workload.steps.items():
        try:
            step = make_step(given.step, given.args, given.kwargs)
            base = step.base()
            traced = step.trace(base, given.args, given.kwargs, what="the step")
            out = traced.out_info
            threaded = threading(given, step, step.inputs.arguments(given.args), out)
        except Refused as error:
            raise Refused(error.kind, f"{name}: {error}" if name != ONLY else str(error)) from error
        leaves = step.inputs.leaves(given.args, given.kwargs)
        flat, _ = jax.tree_util.tree_flatten_with_path(out)
        paths = tuple("out" + jax.tree_util.keystr(path) for path, _ in flat)
        parts.append(Part(name, step, given.weight, {(): base}))
        states[name] = State(step.inputs, leaves, threaded, grain=grain_of(traced.jaxpr))
        steps[name] = OpenedStep(step, leaves, threaded, paths)
        copies |= {id(leaf): copy for i, leaf in enumerate(leaves) if (copy := states[name].copy_of(i)) is not None}
    state = States(states)
    if len(states) > 1:
        state.lose()  # two steps may have been given one array, and each must be free to donate its own
    openers = {
        name: functools.partial(others_of.opened, name, others_of.without_sharing(other, copies), events)
        for name, other in others.items()
    }
    session = WorkerSession(tuple(parts), state, workload.check, events, others=openers)
    notices = (_AUTO_PGLE,) if internals.switch_off_auto_pgle() else ()
    return Opened(session, workload, steps, notices)
