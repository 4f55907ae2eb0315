"""Exceptions to failures: which class of failure a user would call it."""

from __future__ import annotations

import traceback
from pathlib import Path

from tuner.protocol.failure import Failure, FailureClass

__all__ = ["RankFailed", "Refused", "a_type", "failure_of", "first_line", "place_of"]

_TRACEBACK_LIMIT = 20_000  # characters: a line on the pipe, not an archive

# First match wins. Texts are those of XLA's status messages and of jax's back-end start.
_TEXTS: tuple[tuple[str, FailureClass], ...] = (
    ("RESOURCE_EXHAUSTED", FailureClass.OUT_OF_MEMORY),
    ("Out of memory", FailureClass.OUT_OF_MEMORY),
    ("No such compile option", FailureClass.UNSUPPORTED),
    ("Unable to initialize backend", FailureClass.PLATFORM),
    ("Unknown backend", FailureClass.PLATFORM),
)
# Complaints about an option's value. Build options (effort levels) are checked by Python bindings, with other words.
_BAD_VALUES = ("While setting option", "incompatible function arguments", "is not a valid CompilerEffortLevel")
_PHASES = {"load": FailureClass.WORKLOAD, "compile": FailureClass.COMPILE, "probe": FailureClass.COMPILE}


class Refused(Exception):
    """The worker itself says no, and knows the class of failure."""

    def __init__(self, kind: FailureClass, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RankFailed(Exception):
    """What one rank of a gang failed by, raised on every rank alike."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def a_type(value: object) -> str:
    """`value`'s type with its article, for a message: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def first_line(error: BaseException) -> str:
    """What `error` says in one line: the compiler's words verbatim, other exceptions with their type's name."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    if not lines:
        return name
    return (
        lines[0]
        if isinstance(error, Refused) or name in ("JaxRuntimeError", "XlaRuntimeError")
        else f"{name}: {lines[0]}"
    )


def failure_of(error: BaseException, phase: str) -> Failure:
    """`error`, raised in `phase` (the name of the request's op), as a failure."""
    if isinstance(error, RankFailed):
        return error.failure
    text = "".join(traceback.format_exception(error))
    return Failure(kind=_kind(error, phase), phase=phase, message=first_line(error), traceback=text[-_TRACEBACK_LIMIT:])


def place_of(error: BaseException, folder: Path) -> str:
    """Where `error` came out of the user's code: "file.py:12" of the innermost frame in `folder`, or ""."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(folder):
            return f"{path.relative_to(folder)}:{frame.lineno}"
    return ""


def _kind(error: BaseException, phase: str) -> FailureClass:
    if isinstance(error, Refused):
        return error.kind
    if isinstance(error, MemoryError):
        return FailureClass.HOST_OUT_OF_MEMORY
    text = str(error)
    for needle, kind in _TEXTS:
        if needle in text:
            return kind
    if phase in ("compile", "pgle") and any(needle in text for needle in _BAD_VALUES):
        return FailureClass.BAD_VALUE
    return _PHASES.get(phase, FailureClass.RUNTIME)
