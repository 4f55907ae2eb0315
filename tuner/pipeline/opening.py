"""Opening a run: check what the user wrote, find or make the run's folder, take the device, remember what was found."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tuner
from tuner.errors import UsageError
from tuner.knobs import (
    DELIVERIES,
    WORKLOAD_GROUP,
    XLA_FLAGS,
    Config,
    SearchSpace,
    check_flags,
    default_spaces,
    load_spaces,
    pins,
    shipped_spaces,
)
from tuner.knobs.declare import did_you_mean
from tuner.machine import (
    Conditions,
    Device,
    DeviceLock,
    Sampler,
    device_names,
    inherited,
    open_devices,
    read_host,
    read_interpreter,
    relevant,
)
from tuner.measure import OBJECTIVES
from tuner.pipeline import workload_file
from tuner.pipeline.context import Run
from tuner.pipeline.options import RunOptions
from tuner.protocol.messages import OptionValue
from tuner.report.listener import Listener
from tuner.session import Deadlines, GangSession, Launch, LocalSession, Session, SessionFactory
from tuner.store import EventLog, earlier_run, new_run, open_store, run_identity
from tuner.store.events import Resumed, RunStarted
from tuner.store.held import form_text, held_text
from tuner.store.index import Index
from tuner.store.study import StudyMirror
from tuner.store.upkeep import restore_studies

__all__ = ["opened"]

# Seconds for making the studies of earlier runs anew, if the database was damaged, before anything is measured.
_STUDIES_S = 10.0


@contextmanager
def opened(
    options: RunOptions,
    *,
    listener: Listener,
    factory: SessionFactory | None,
    conditions: Sampler | None = None,
    clock: Callable[[], float],
) -> Iterator[Run]:
    """The run that `options` means, new or gone on with, for as long as the block lasts.

    Everything that can be wrong with what the user wrote is found here, before a worker starts. Raises UsageError and
    its kinds, StoreError, DeviceBusy.
    """
    _check(options)
    file = workload_file.inspect(options.workload)
    env = inherited()
    check_flags(env.get(XLA_FLAGS, ""), where="inherited XLA_FLAGS")
    with ExitStack() as stack:
        reader = open_devices(env)
        stack.callback(reader.close)
        devices = () if options.platform == "cpu" else reader.devices()
        host = read_host()
        space = load_spaces(options.spaces or default_spaces(_platform(options, devices), devices=len(devices)))
        held, workload_knobs = _hold(options, file, space)
        _check_groups(options.first, space)
        _check_override(options.override, space, env)
        _check_pins(options, held, space, env)
        store = open_store(options.store)
        identity = run_identity(
            options.workload,
            spaces={space.name: space.digest},
            options=_meaning(options),
            interpreter=read_interpreter(options.python),
            devices=devices,
            host=host,
            env=env,
        )
        command = shlex.join(options.command)
        stack.enter_context(DeviceLock(device_names(_platform(options, devices), devices), command=command))
        folder = (None if options.fresh else earlier_run(store, identity)) or new_run(store, identity)
        log = stack.enter_context(EventLog(folder.events, command=command))
        index = Index(store.url, runs=store.runs)
        stack.callback(index.close)
        index.open()
        lost = restore_studies(store, store.run_folders(), limit_s=_STUDIES_S) if index.renewed else []
        study = StudyMirror(store.url)
        stack.callback(study.close)
        run = Run(
            options=options,
            workload=file,
            space=space,
            held=held,
            workload_knobs=workload_knobs,
            inherited=env,
            devices=devices,
            host=host,
            folder=folder,
            log=log,
            index=index,
            study=study,
            listener=listener,
            factory=factory or (lambda launch: _session(launch, env, lambda: run.deadlines)),
            conditions=conditions or (Conditions(reader) if factory is None else None),
            clock=clock,
        )
        if not log.events:
            run.emit(
                RunStarted(
                    run=folder.id,
                    workload=str(options.workload),
                    command=options.command,
                    identity=identity,
                    options={**_meaning(options), "form": _form(options, workload_knobs)},
                    inherited=relevant(env),
                    tuner=tuner.__version__,
                )
            )
        else:
            for event in log.events:
                run.remember(event)
            run.resume()
            run.listener.on_resumed(log.events)
            if "report" not in run.records:
                run.emit(Resumed())
        # Whoever looks up something meanwhile, or after a run that failed at once, isn't sent to the logs for it.
        told = index.record(run.events)
        for text in (*store.notices, *log.notices, *lost, *([told] if told else [])):
            run.notice(text)
        yield run


def _session(launch: Launch, env: Mapping[str, str], deadlines: Callable[[], Deadlines]) -> Session:
    """A real worker, or a gang of them."""
    kind = GangSession if launch.launcher or launch.processes > 1 else LocalSession
    return kind(launch, environ=env, deadlines=deadlines)


def _check_override(names: tuple[str, ...], space: SearchSpace, env: Mapping[str, str]) -> None:
    """`--override` names an inherited variable that is pinned, or a knob: one of another shipped space too, since a
    settings file may serve several machines. A misspelt name would leave the pin where it is, without a word."""
    known = {*space.names, *(a for k in space.knobs for a in k.aliases), *pins(env)}
    if not known.issuperset(names):
        known |= set(load_spaces(shipped_spaces()).names)
    for name in names:
        if name not in known:
            raise UsageError(
                f"{name!r} is neither a knob nor an inherited variable that is kept{did_you_mean(name, known)}",
                where="--override",
                next="tune knobs lists the knobs, tune doctor the variables",
            )


def _check_pins(options: RunOptions, held: Config, space: SearchSpace, env: Mapping[str, str]) -> None:
    """What somebody set for this machine's network isn't held at another value by the way."""
    for name, value in held.settings:
        if name in pins(env) and name not in options.override and env[name] != value:
            raise UsageError(
                f"{name} is inherited as {env[name]!r}", where="--knob", next=f"add --override {name} to change it"
            )


def _check(options: RunOptions) -> None:
    """What the types of the options don't say."""
    if options.objective not in OBJECTIVES:
        raise UsageError(
            f"unknown objective {options.objective!r}; there are {', '.join(OBJECTIVES)}", where="--objective"
        )
    limit = options.max_memory
    if limit is not None and not (limit > 0 and (isinstance(limit, int) or limit <= 1)):
        raise UsageError(
            f"{limit!r} is neither a positive number of bytes nor a share from 0 to 1", where="--max-memory"
        )
    for text, where in ((options.launch, "--launch"), (options.seal_with, "--seal-with")):
        try:
            shlex.split(text)
        except ValueError as error:
            raise UsageError(f"{text!r} can't be split into words: {error}", where=where) from None
    if options.pgle not in DELIVERIES:
        raise UsageError(f"unknown delivery {options.pgle!r}; there are {', '.join(DELIVERIES)}", where="--pgle")
    if options.install_path:
        _check_install_path(options)


def _check_install_path(options: RunOptions) -> None:
    """The profile is confirmed at the place that production reads it from, so it has to be there now."""
    if options.pgle != "file":
        raise UsageError("only a profile that is delivered as a file has a place", where="--install-path")
    folder = Path(options.install_path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{folder} can't be written: {error.strerror}",
            where="--install-path",
            next="the compiler's key has the profile's path in it: name a folder that is there now and in production",
        ) from error


def _check_groups(first: tuple[str, ...], space: SearchSpace) -> None:
    """`--first` names groups that the space has, or the workload's own knobs, which only it can tell."""
    known = dict.fromkeys([*(k.group for k in space.knobs if k.group), WORKLOAD_GROUP])
    for group in first:
        if group not in known:
            raise UsageError(
                f"no knob is of the group {group!r}", where="--first", next=f"the groups are {', '.join(known)}"
            )


def _platform(options: RunOptions, devices: tuple[Device, ...]) -> str:
    """The platform whose spaces are the default: what was asked for, else gpu where there is one."""
    return options.platform or ("gpu" if devices else "cpu")


def _meaning(options: RunOptions) -> dict[str, str]:
    """The options that change what a run means: with other ones it is another run."""
    return {
        "argv": shlex.join(options.argv),
        "budget_s": f"{options.budget_s:g}",
        "trials": str(options.trials),
        "min_gain": f"{options.min_gain:g}",
        "hold": held_text(options.hold),
        "platform": options.platform or "",
        "allow": " ".join(sorted(options.allow)),
        "override": " ".join(sorted(options.override)),
        "seed": str(options.seed),
        "objective": options.objective,
        "launch": options.launch,
        "max_memory": "" if options.max_memory is None else repr(options.max_memory),
        **({"first": " ".join(options.first)} if options.first else {}),
        **({"pgle": options.pgle} if options.pgle != "cache" else {}),
        **({"install_path": options.install_path} if options.install_path else {}),
    }


def _form(options: RunOptions, workload_knobs: Mapping[str, OptionValue]) -> str:
    knobs = held_text({name: options.hold[name] for name in workload_knobs})
    return form_text(knobs, shlex.join(options.argv))


def _hold(
    options: RunOptions, file: workload_file.WorkloadFile, space: SearchSpace
) -> tuple[Config, Mapping[str, OptionValue]]:
    """`--knob NAME=VALUE`, told apart: knobs of the space, and parameters of build()."""
    known = {k.name: k for k in space.knobs} | {a: k for k in space.knobs for a in k.aliases}
    of_space: dict[str, str] = {}
    of_workload: dict[str, OptionValue] = {}
    for name, value in options.hold.items():
        knob = known.get(name)
        if knob is None:
            file.check_knob(name, frozenset(known))
            of_workload[name] = workload_file.typed_knob(value)
        elif knob.carrier == "pgle":
            raise UsageError(f"{name} can't be held: its carrier is {knob.carrier}", where="--knob")
        else:
            of_space[knob.name] = value
    return Config.of(of_space), of_workload
