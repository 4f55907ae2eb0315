"""The load request for a workload with `build`: import the file, call build, make the session. No jax before Load."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Load, Loaded
from tuner.protocol.package import package_of
from tuner.worker.failures import Refused, failure_of, first_line, place_of

if TYPE_CHECKING:
    from tuner.worker.session import WorkerSession

__all__ = ["Environ", "declared_knobs", "enter", "from_build", "has_build", "knob_values", "user_error"]

_WATCHED = ("XLA_", "JAX_", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_", "CUDA_")


@dataclass(frozen=True)
class Environ:
    """The environment variables that XLA, jax and NCCL read, at one moment."""

    values: Mapping[str, str]

    @classmethod
    def now(cls) -> Environ:
        return cls({name: value for name, value in os.environ.items() if name.startswith(_WATCHED)})

    def changes_since(self, earlier: Environ) -> dict[str, str | None]:
        """Variables that differ from `earlier`, with their present values; None: gone."""
        names = sorted(self.values.keys() | earlier.values.keys())
        return {name: self.values.get(name) for name in names if self.values.get(name) != earlier.values.get(name)}


def has_build(workload: str) -> bool:
    """Whether the file has a top-level ``def build``; it is parsed, not executed.

    Raises Refused(WORKLOAD) if it can't be read or is no Python.
    """
    try:
        tree = ast.parse(Path(workload).read_bytes(), filename=workload)
    except OSError as error:
        raise _refused(f"{workload} can't be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise _refused(f"{workload} is no Python this interpreter reads: {error}") from error
    return any(isinstance(node, ast.FunctionDef) and node.name == "build" for node in tree.body)


def enter(workload: str, argv: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Make the process look like ``python workload argv…``, or ``python -m`` where the file is part of a package:
    sys.argv and sys.path. Returns the file's full path and its package's names."""
    path = Path(workload).resolve()
    sys.argv = [workload, *argv]
    package = package_of(path, path.read_bytes())
    last = [] if package.last is None else [str(package.last)]
    # The worker's own zip stays importable, behind everything the user has.
    sys.path[:] = [str(package.first), *sys.path[1:], *last, sys.path[0]]
    return path, package.names


def from_build(request: Load) -> tuple[WorkerSession, Loaded]:
    """Import jax and the file, build the state once."""
    start = time.perf_counter()
    from tuner.worker import describe  # imports jax
    from tuner.worker import open as opening

    import_s = time.perf_counter() - start
    backend, events = opening.prepare(request.platform)
    before = Environ.now()
    start = time.perf_counter()
    path, package = enter(request.workload, request.argv)
    module = _imported(path, package)
    declared = declared_knobs(getattr(module, "KNOBS", {}))
    knobs = knob_values(module.build, declared, request.knobs)
    # Only now: settings that the file makes at import (device count, distributed start) must come before the devices.
    opening.check_platform(request.platform)
    try:
        returned = module.build(**knobs)
    except BaseException as error:
        raise user_error("build()", error, path) from error
    recompiled = events.places.since({})
    opened = opening.open_build(returned, events)
    return opened.session, describe.loaded(
        opened,
        source="build",
        backend=backend,
        environ_changed=Environ.now().changes_since(before),
        knobs_declared={name: tuple(str(value) for value in values) for name, values in declared.items()},
        import_s=import_s,
        build_s=time.perf_counter() - start,
        recompiled=recompiled,
    )


def declared_knobs(declared: Any) -> dict[str, tuple[Any, ...]]:
    """The file's ``KNOBS``: name → values. Raises Refused(WORKLOAD) for another shape."""
    if not isinstance(declared, Mapping):
        raise _refused(f"KNOBS must be a mapping from a knob's name to its values, not a {type(declared).__name__}")
    for name, values in declared.items():
        if not isinstance(name, str):
            raise _refused(f"KNOBS: a knob's name must be text, not {name!r}")
        if not isinstance(values, (list, tuple)) or not values:
            raise _refused(f"KNOBS[{name!r}] must be a list of values, not {values!r}")
        for value in values:
            if not isinstance(value, (str, int, float)):
                raise _refused(f"KNOBS[{name!r}]: {value!r} is neither text nor a number nor a truth value")
    return {name: tuple(values) for name, values in declared.items()}


def knob_values(build: Any, declared: Mapping[str, tuple[Any, ...]], given: Mapping[str, Any]) -> dict[str, Any]:
    """What build gets: a value given as text becomes the declared value of that text.

    Raises Refused(WORKLOAD) for names that build doesn't take.
    """
    parameters = inspect.signature(build).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for where, names in (("KNOBS", declared), ("--knob", given)):
            if unknown := [name for name in names if name not in parameters]:
                takes = ", ".join(parameters) or "no arguments"
                raise _refused(f"{where} names {', '.join(unknown)}, which build() doesn't take; it takes {takes}")
    return {
        name: next((known for known in declared.get(name, ()) if str(known) == str(value)), value)
        for name, value in given.items()
    }


def user_error(what: str, error: BaseException, path: Path) -> Refused:
    """A failure inside the user's code, with its place. A device that ran out of memory stays that."""
    place = place_of(error, path.parent)
    return Refused(failure_of(error, "load").kind, f"{what} raised {first_line(error)}{f' ({place})' if place else ''}")


def _imported(path: Path, package: tuple[str, ...]) -> ModuleType:
    """The file as a module of its own name, as an import from its folder, or of its package, would give it."""
    stem = path.stem if package or path.stem not in sys.modules else f"workload_{path.stem}"
    name = ".".join((*package, stem))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _refused(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        if package:
            sys.modules.pop(name, None)  # of an earlier, refused load
            importlib.import_module(".".join(package))
            if name in sys.modules:  # the package imports the file itself
                return sys.modules[name]
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except BaseException as error:
        raise user_error(f"importing {path.name}", error, path) from error
    return module


def _refused(message: str) -> Refused:
    return Refused(FailureClass.WORKLOAD, message)
