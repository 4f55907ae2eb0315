"""What the user's objective and memory limit demand of a session and of what it compiles."""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.knobs import DEFAULT, Config, split
from tuner.pipeline.context import Run
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Compiled, Loaded
from tuner.report.wording import bytes_text

__all__ = ["incomparable", "memory_limit", "other_work", "over_memory", "without_work"]


def without_work(run: Run, loaded: Loaded) -> Failure | None:
    """What to tell where throughput is asked for and the workload declares no work in this session; else None."""
    if run.options.objective != "throughput" or loaded.work is not None:
        return None
    how = "build() returns it" if loaded.source == "build" else "a script can't declare it: write a build() that does"
    return Failure(
        kind=FailureClass.WORKLOAD,
        phase="load",
        message="--objective throughput needs the units of work that a step does, and the workload declares none; "
        f"{how}, as {{'step': …, 'args': …, 'work': 4096}}",
    )


def other_work(run: Run, session: str, config: Config) -> Config:
    """What of `config` makes a step do other work, in the session of that name, than by default: the workload's own
    knobs, or else all that a session is started with. Its results can only be compared with those of the default
    settings at the same work. Nothing where it does the default's."""
    if run.work[session] == (run.loaded.work or 1.0):
        return DEFAULT
    own = Config.of({n: v for n, v in config.settings if run.space.knob(n).carrier == "workload"})
    return own if own != DEFAULT else split(config, run.space)[0]


def incomparable(run: Run, session: str, config: Config) -> Failure | None:
    """What to tell where times of a step can't be compared with the default's in this session; else None."""
    if run.options.objective == "throughput" or other_work(run, session, config) == DEFAULT:
        return None
    there, here = run.work[session], run.loaded.work or 1.0
    return Failure(
        kind=FailureClass.OTHER_WORK,
        phase="load",
        message=f"with {config} a step does {there:g} units of work, and {here:g} without: times of a step don't "
        "compare these, --objective throughput does",
    )


def memory_limit(run: Run) -> int | None:
    """`--max-memory` in bytes, None without it. Raises UsageError for a share of a memory whose size is unknown."""
    wanted = run.options.max_memory
    if wanted is None or isinstance(wanted, int):
        return wanted
    known = [*(d.memory_bytes for d in run.devices), run.loaded.device_memory_bytes]
    sizes = [size for size in known if size is not None]
    if not sizes:
        raise UsageError(
            "a share of the device's memory can't be kept: its size is unknown here",
            where="--max-memory",
            next="give it in bytes, as 8GiB",
        )
    return int(wanted * sizes[0])


def over_memory(run: Run, config: Config, made: Compiled) -> Failure | None:
    """Why `config` may not be timed: its peak memory, as the compiler tells it, is beyond the limit. None if it may.

    The default is always timed, as what everything is compared with; that it is beyond the limit is only noticed, as is
    a peak that the compiler doesn't tell.
    """
    limit = memory_limit(run)
    if limit is None:
        return None
    if made.peak_bytes is None:
        run.notice("the compiler doesn't tell the step's peak memory here: --max-memory can't be kept")
        return None
    if made.peak_bytes <= limit:
        return None
    needs, allows = bytes_text(made.peak_bytes), bytes_text(limit)
    if needs == allows:
        needs, allows = f"{made.peak_bytes} bytes", f"{limit} bytes"
    numbers = f"{needs} at its peak, and --max-memory allows {allows}"
    if config == DEFAULT:
        run.notice(
            f"the default itself needs {numbers}: it stays what all is compared with, and is kept if nothing is faster"
        )
        return None
    return Failure(kind=FailureClass.OVER_MEMORY, phase="compile", message=f"needs {numbers}")
