"""Opens a session: the platform, the step that the workload handed over, and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from tuner.protocol.failure import FailureClass
from tuner.worker import carry, internals
from tuner.worker.events import CompileEvents
from tuner.worker.failures import Refused, first_line
from tuner.worker.session import WorkerSession
from tuner.worker.state import State
from tuner.worker.step import Step, Workload, make_step, workload_of

__all__ = ["Opened", "check_platform", "open_build", "open_call", "prepare"]


@dataclass(frozen=True)
class Opened:
    """A session with what only the reply to Load tells. `leaves`: the initial inputs; not to be kept."""

    session: WorkerSession
    leaves: list[Any]
    workload: Workload
    carry: carry.Carry
    out_paths: tuple[str, ...]


def prepare(platform: str | None) -> internals.BackendStart:
    """Call right after jax is imported, before any device is touched: asks jax for the wanted platform."""
    wanted = str(jax.config.values["jax_platforms"] or "").split(",")
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    elif platform is not None and wanted[0] == "cpu":
        # An inherited JAX_PLATFORMS=cpu would hide what was asked for.
        jax.config.update("jax_platforms", "")  # type: ignore[no-untyped-call]
    return internals.watch_backend_start()


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


def open_build(returned: Any) -> Opened:
    """A session from what `build` returned. Raises Refused(WORKLOAD) if it can't be stepped."""
    workload = workload_of(returned)

    def threading(step: Step, arguments: tuple[Any, ...], out: Any) -> carry.Carry:
        if workload.carry is not None:
            return carry.counted(arguments, out, workload.carry)
        return carry.detected(arguments, out, donated=step.donated)

    return _open(workload, threading)


def open_call(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, seen: Sequence[tuple[int, int]]
) -> Opened:
    """A session from one call in a running script. `seen`: (input leaf, output leaf) pairs that its calls threaded;
    without any, shapes decide."""

    def threading(step: Step, arguments: tuple[Any, ...], out: Any) -> carry.Carry:
        return carry.paired(arguments, out, seen) if seen else carry.detected(arguments, out, donated=step.donated)

    return _open(Workload(function, args, kwargs), threading)


def _open(workload: Workload, threading: Callable[[Step, tuple[Any, ...], Any], carry.Carry]) -> Opened:
    step = make_step(workload.step, workload.args, workload.kwargs)
    base = step.base()
    try:
        out = step.bind(step.jit(base, {}).eval_shape)(*workload.args, **workload.kwargs)
    except Exception as error:
        raise Refused(FailureClass.WORKLOAD, f"the step can't be traced: {first_line(error)}") from error
    threaded = threading(step, step.inputs.arguments(workload.args), out)
    leaves = step.inputs.leaves(workload.args, workload.kwargs)
    flat, _ = jax.tree_util.tree_flatten_with_path(out)
    paths = tuple("out" + jax.tree_util.keystr(path) for path, _ in flat)
    state = State(step.inputs, leaves, threaded)
    session = WorkerSession(step, state, workload.check, CompileEvents(), bases={(): base})
    return Opened(session, leaves, workload, threaded, paths)
