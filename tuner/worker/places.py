"""Where the workload compiles: which function, at which line of its own code, how often and for how long."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import jax

from tuner.protocol.messages import Recompiled

__all__ = ["Places", "user_line"]

Place = tuple[str, str]  # the function's name, and file:line

_COMPILED = "/jax/core/compile/backend_compile_duration"
_NAME = re.compile(r"jit\((.*)\)")
_FOLDER = str(Path(__file__).parent) + os.sep
_PASSED = frozenset(_FOLDER + name for name in ("places.py", "watch.py", "capture.py"))  # between a script and jax
_LIBRARIES = tuple(
    str(Path(file).parent) + os.sep
    for module in ("jax", "jaxlib")
    if (file := getattr(sys.modules.get(module), "__file__", ""))
)
_STANDARD = str(Path(os.__file__).parent) + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_OFTEN = 4  # compiles at one place: fewer are a program's own few shapes
_MOST = 12


class Places:
    """Listens from its making to the end of the process (jax has no public way to stop listening). What the worker
    itself compiles is not counted."""

    def __init__(self) -> None:
        self._count: Counter[Place] = Counter()
        self._seconds: defaultdict[Place, float] = defaultdict(float)
        self._here: defaultdict[int, float] = defaultdict(float)
        self._mutex = threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._event)

    def here(self) -> float:
        """Seconds in the compiler so far, in this thread."""
        return self._here[threading.get_ident()]

    def counts(self) -> Mapping[Place, int]:
        """How often what was compiled so far."""
        with self._mutex:
            return dict(self._count)

    def since(self, before: Mapping[Place, int], *, often: int = _OFTEN) -> tuple[Recompiled, ...]:
        """What has been compiled `often` times or more since `counts` gave `before`, the slowest first. Seconds are
        those since the start."""
        with self._mutex:
            found = [
                Recompiled(name=name, where=where, compiles=more, seconds=self._seconds[name, where])
                for (name, where), count in self._count.items()
                if (more := count - before.get((name, where), 0)) >= often
            ]
        return tuple(sorted(found, key=lambda one: -one.seconds)[:_MOST])

    def _event(self, event: str, duration_secs: float, **details: str | int) -> None:
        if event != _COMPILED:
            return
        self._here[threading.get_ident()] += duration_secs
        where = user_line(sys._getframe(1))
        if not where:
            return
        told = str(details.get("fun_name", ""))
        match = _NAME.fullmatch(told)
        with self._mutex:
            place = match.group(1) if match else told, where
            self._count[place] += 1
            self._seconds[place] += duration_secs


def user_line(frame: FrameType | None) -> str:
    """File and line of the innermost call, from `frame` outwards, that is in the workload's own code or its libraries;
    "" if the worker called first: a script is still on the stack when it has long been taken over."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_FOLDER) and file not in _PASSED:
            return ""
        if not _passed(file):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _passed(file: str) -> bool:
    """Files of jax, of Python, and of what of the worker stands between a script and jax."""
    if file in _PASSED or file.startswith(("<", *_LIBRARIES)):
        return True
    return file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)
