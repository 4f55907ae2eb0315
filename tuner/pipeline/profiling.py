"""`tune profile`: one workload under given settings, traced in a process of its own, without a run around it."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from tuner.errors import SessionEnded, TunerError, UsageError
from tuner.handoff.cache import isolated
from tuner.knobs import XLA_FLAGS, check_flags, pins
from tuner.machine import inherited, read_host, relevant
from tuner.machine.environment import environment_of
from tuner.pipeline import workload_file
from tuner.pipeline.alone import held_devices
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.profiles import measured_ceiling
from tuner.pipeline.tracing import profile_session, step_seconds, steps_to_trace
from tuner.profile import StepProfile, nsight_compute, nsight_systems
from tuner.protocol.alone import ALONE
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Compiled, Loaded, OptionValue, Profile, Variant
from tuner.report.profile import Profiling
from tuner.session import Deadlines, GangSession, Launch, LocalSession, Session, SessionFactory
from tuner.session.package import worker_zip
from tuner.session.refusal import refusal
from tuner.store.disk import disk_error

__all__ = ["ProfileOptions", "profile_workload"]

T = TypeVar("T")

_NSYS, _NCU = "nsys", "ncu"
_REPORTS = "nsys-*.nsys-rep"
_OWN_PGLE, _ON = "JAX_ENABLE_PGLE", ("1", "true", "yes", "on")
_NOT_THERE = "is not installed here, or not on PATH"


class ProfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`env`: changes to the inherited environment, None removes a variable. `knobs`: parameters of build(). `steps`: to
    trace, None: by the step's time. `processes`, `launcher`: as in `Launch`. `nsight`: a timeline by Nsight Systems in
    place of jax's trace; `delay_s`, `duration_s`: the stretch of the process to capture, by default the traced steps
    alone. `folder`: where all goes; `root`: where ceilings are kept."""

    workload: Path
    folder: Path
    root: Path
    argv: tuple[str, ...] = ()
    env: dict[str, str | None] = {}
    knobs: dict[str, OptionValue] = {}
    steps: int | None = None
    processes: int = 1
    launcher: tuple[str, ...] = ()
    nsight: bool = False
    delay_s: float | None = None
    duration_s: float | None = None
    python: str = sys.executable
    platform: str | None = None


def profile_workload(
    options: ProfileOptions, *, factory: SessionFactory | None = None, begins: Callable[[], None] = lambda: None
) -> Profiling:
    """Profile it. `begins` is called once all that the user wrote is found in order.

    Raises UsageError and its kinds for what the user wrote, DeviceBusy, TunerError if the worker ends, the step fails
    or the profiler does.
    """
    file = workload_file.inspect(options.workload)
    for name in options.knobs:
        file.check_knob(name, frozenset())
    if options.nsight and (options.env.get(_OWN_PGLE) or "").lower() in _ON:
        raise UsageError(
            f"{_OWN_PGLE} has jax take a profile of its own, and a process has one profiler",
            next="take that first (tune pgle), then use --nsys with the env-file that it writes",
        )
    environ = inherited()
    check_flags(environ.get(XLA_FLAGS, ""), where="inherited XLA_FLAGS")
    worker = (options.python, str(worker_zip()))
    timeline: tuple[str, ...] = ()
    if options.nsight:
        timeline = nsight_systems(
            worker, output=options.folder / "nsys", delay_s=options.delay_s, duration_s=options.duration_s
        )
        if shutil.which(_NSYS) is None:
            notice = f"Nsight Systems ({_NSYS}) {_NOT_THERE}; with it, tune starts the worker with this command"
            return Profiling(profile=None, folder=options.folder, nsight=timeline, notices=(notice,), missing=True)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, options.folder) from error
    with _told(options, environ), ExitStack() as stack:
        command = f"tune profile {options.workload}"
        devices = stack.enter_context(held_devices(options.platform, environ, command=command))
        begins()
        launch = _launch(options, environ)
        session = factory(launch) if factory else _made(launch, environ, timeline[: -len(worker)] if timeline else ())
        stack.callback(session.close)
        loaded, compiled, step_s = _ready(session, options)
        steps = options.steps or steps_to_trace(step_s)
        if options.nsight:
            marked = session.profile(Profile(id=CONTROL, steps=steps, folder=str(options.folder), nsight=True))
            _raise_on(marked, options)
            stack.close()  # it writes its report once the worker has ended
            return _reported(options, timeline)
        key = environment_of(loaded, devices, read_host()).key
        found = profile_session(
            session,
            loaded=loaded,
            compiled=compiled,
            folder=options.folder,
            steps=steps,
            step_s=step_s,
            ceiling=lambda living: measured_ceiling(living, options.root, key),
        )
    profile = _raise_on(found, options)
    kernel = _hottest(profile, options, worker) if loaded.platform != "cpu" else ()
    notices = (f"Nsight Compute ({_NCU}) {_NOT_THERE}",) if kernel and shutil.which(_NCU) is None else ()
    return Profiling(profile=profile, folder=options.folder, kernel=kernel, notices=notices)


def _reported(options: ProfileOptions, timeline: tuple[str, ...]) -> Profiling:
    """What Nsight Systems left, a report a process."""
    found = sorted(str(path) for path in options.folder.glob(_REPORTS))
    if not found:
        raise TunerError(
            f"Nsight Systems left no report in {options.folder}",
            next=f"see {options.folder}/worker-*.log, which has what it said",
        )
    return Profiling(profile=None, folder=options.folder, nsight=timeline, reports=tuple(found))


def _launch(options: ProfileOptions, environ: Mapping[str, str]) -> Launch:
    env = {**isolated(), **options.env}
    outside = {**relevant(environ), **{name: environ[name] for name in pins(environ)}}
    return Launch(
        name="profile",
        role="profile",
        workload=options.workload,
        log=options.folder / f"worker-{time.strftime('%H%M%S')}.log",
        python=options.python,
        env=env,
        argv=options.argv,
        platform=options.platform,
        knobs=options.knobs,
        processes=options.processes,
        launcher=options.launcher,
        pins={name: value for name, value in outside.items() if name not in env} if options.launcher else {},
    )


def _made(launch: Launch, environ: Mapping[str, str], wrapper: tuple[str, ...]) -> Session:
    if launch.launcher or launch.processes > 1:
        return GangSession(launch, environ=environ, deadlines=Deadlines(), wrapper=wrapper)
    return LocalSession(launch, environ=environ, deadlines=Deadlines(), wrapper=wrapper)


def _ready(session: Session, options: ProfileOptions) -> tuple[Loaded, Compiled, float]:
    """The session with its step compiled, and a step's seconds."""
    loaded = session.start()
    made = _raise_on(session.compile([Variant(id=CONTROL)]).results[0], options)
    return loaded, made, _raise_on(step_seconds(session), options)


@contextmanager
def _told(options: ProfileOptions, environ: Mapping[str, str]) -> Iterator[None]:
    """A worker's end as what the user can do about it."""
    try:
        yield
    except SessionEnded as ended:
        flags = XLA_FLAGS if {**environ, **options.env}.get(XLA_FLAGS) else ""
        if (refused := refusal(ended.failure, workload=options.workload, flags=flags, log=options.folder)) is not None:
            raise refused from ended
        _raise_on(ended.failure, options)


def _raise_on(found: T | Failure, options: ProfileOptions) -> T:
    if isinstance(found, Failure):
        raise TunerError(
            f"the step can't be profiled: {found.message}", where=found.phase, next=f"see {options.folder}/worker-*.log"
        )
    return found


def _hottest(profile: StepProfile, options: ProfileOptions, worker: tuple[str, ...]) -> tuple[str, ...]:
    """The command for the kernel that takes longest, over all operations that it runs for."""
    found = profile.breakdown
    kernels = [(row.category, row.name) for row in found.by_kernel]
    kernels += [(row.category, row.kernel or row.name) for row in found.ops]
    name = next((name for category, name in kernels if category not in ("loop control", "copy on device")), "")
    if not name:
        return ()
    # Nsight Compute puts all allocated memory back for each of its dozens of passes: let that not be most of the card.
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **options.env}
    return _under(env, nsight_compute(_program(options, worker), name, output=options.folder / "ncu"))


def _program(options: ProfileOptions, worker: tuple[str, ...]) -> tuple[str, ...]:
    """What runs the step by itself: a script does, and of a file with `build` the worker is told to."""
    file = workload_file.inspect(options.workload)
    if file.source == "script":
        return (options.python, str(options.workload), *options.argv)
    how = {"platform": options.platform, "knobs": dict(options.knobs)}
    return (*worker, ALONE, str(options.workload), json.dumps(how), *options.argv)


def _under(env: Mapping[str, str | None], command: tuple[str, ...]) -> tuple[str, ...]:
    """`command` with those variables set, or unset."""
    gone = [word for name, value in env.items() if value is None for word in ("-u", name)]
    told = [f"{name}={value}" for name, value in env.items() if value is not None]
    return ("env", *gone, *told, *command)
