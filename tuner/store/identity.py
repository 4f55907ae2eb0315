"""A run's identity: what the same command continues and what starts another run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.machine.devices import Device
from tuner.machine.host import Host
from tuner.machine.inherited import relevant
from tuner.machine.interpreter import Interpreter
from tuner.store.events import RunStarted
from tuner.store.folder import RunFolder, Store, run_name
from tuner.store.log import read_first
from tuner.store.sources import workload_digest

__all__ = ["earlier_run", "new_run", "run_id", "run_identity"]

# Variables that change what is printed and nothing else.
_LOGGING = frozenset(
    {
        "JAX_LOGGING_LEVEL",
        "JAX_TRACEBACK_FILTERING",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
        "NCCL_DEBUG_SUBSYS",
        "NVSHMEM_DEBUG",
        "TF_CPP_MAX_VLOG_LEVEL",
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_CPP_VMODULE",
    }
)


def run_identity(
    workload: Path,
    *,
    spaces: Mapping[str, str],
    options: Mapping[str, str],
    interpreter: Interpreter,
    devices: Sequence[Device],
    host: Host,
    env: Mapping[str, str],
) -> dict[str, str]:
    """Everything that a result of this run depends on and that is known before a worker starts, as named texts.

    `spaces`: name → digest of each search space. `options`: those that change meaning, as texts. `env`: the environment
    that workers inherit. Raises WorkloadError if the workload or a module beside it can't be read.
    """
    # Which of several equal cards it is doesn't matter: a queue gives another one each time.
    ignored = _LOGGING | {"CUDA_VISIBLE_DEVICES"} if devices else _LOGGING
    parts = {
        "name": workload.stem,
        "workload": workload_digest(workload),
        "interpreter": interpreter.path,
        "python": interpreter.python,
        "devices": ", ".join(sorted(d.name for d in devices)) or "none",
        "driver": ", ".join(sorted({d.driver for d in devices if d.driver})),
        "cpu": host.cpu,
        "cores": f"{host.usable_cores:g}",
    }
    for prefix, named in (
        ("space", spaces),
        ("option", options),
        ("package", interpreter.packages),
        ("env", {n: v for n, v in relevant(env).items() if n not in ignored}),
    ):
        parts |= {f"{prefix}:{name}": value for name, value in named.items()}
    return dict(sorted(parts.items()))


def run_id(parts: Mapping[str, str]) -> str:
    """A short name for an identity, the same every time: the workload's name and six hex digits."""
    name = run_name(parts.get("name", ""))
    return f"{name}-{hashlib.sha256(msgspec.json.encode(sorted(parts.items()))).hexdigest()[:6]}"


def earlier_run(store: Store, parts: Mapping[str, str]) -> RunFolder | None:
    """The newest run with this identity, ready to go on; None if there is none.

    A run that was killed before its first event counts too.
    """
    for _, folder in reversed(_numbered(store, run_id(parts))):
        first = read_first(folder.events)
        if first is None or (isinstance(first, RunStarted) and first.identity == dict(parts)):
            folder.create(exist_ok=True)
            return folder
    return None


def new_run(store: Store, parts: Mapping[str, str]) -> RunFolder:
    """Create the folder of the next run of this identity: ``nbody-3f9a1c``, then ``nbody-3f9a1c-2`` and so on."""
    base = run_id(parts)
    number = max((n for n, _ in _numbered(store, base)), default=0) + 1
    while True:
        folder = store.run(base if number == 1 else f"{base}-{number}")
        try:
            folder.create()
        except FileExistsError:  # somebody else took it in this moment
            number += 1
        else:
            return folder


def _numbered(store: Store, base: str) -> list[tuple[int, RunFolder]]:
    """The existing runs under this id with their counters, in the order they were made."""
    pattern = re.compile(re.escape(base) + r"(?:-(\d+))?")
    try:
        names = [p.name for p in store.runs.iterdir() if p.is_dir()]
    except FileNotFoundError:
        return []
    found = [(int(m[1] or 1), store.run(name)) for name in names if (m := pattern.fullmatch(name))]
    return sorted(found, key=lambda pair: pair[0])
