"""The two dialects of env-file: raw lines for container tools, and export lines for shells.

They can't be one file: a container tool takes quotes for part of the value, and a shell that sources the raw form
keeps only the first flag of XLA_FLAGS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuner.errors import UsageError

__all__ = ["parse_raw", "raw", "shell"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANKS = " \t\v\f"  # what Go's and Python's readers strip in front of a line


def raw(env: Mapping[str, str], *, comments: Sequence[str] = ()) -> str:
    """``NAME=value`` lines, sorted by name: for ``docker run --env-file``, podman and kubectl.

    The value is everything behind the first ``=``, byte for byte; nothing is quoted or escaped, "" is a value. The
    dialect can't say that a variable must be unset. Raises UsageError for a name that is none and for values with
    line breaks or NUL, which it can't carry.
    """
    lines = _comment_lines(comments)
    for name, value in sorted(env.items()):
        _check_name(name)
        if bad := re.search(r"[\r\n\0]", value):
            raise UsageError(
                f"the value holds {bad.group()!r}, which no raw env-file can carry",
                where=name,
                next="load the shell form, or write the value on one line",
            )
        lines.append(f"{name}={value}")
    return _joined(lines)


def shell(env: Mapping[str, str | None], *, comments: Sequence[str] = (), trailer: str = "") -> str:
    """``export NAME='value'`` lines, ``unset NAME`` for None, sorted by name: to be sourced by any POSIX shell.

    `trailer` is shell text that follows. Raises UsageError for a name that is none and for values with NUL.
    """
    lines = _comment_lines(comments)
    for name, value in sorted(env.items()):
        _check_name(name)
        if value is None:
            lines.append(f"unset {name}")
        elif "\0" in value:
            raise UsageError("the value holds NUL, which no variable can carry", where=name)
        else:
            lines.append(f"export {name}={quoted(value)}")
    return _joined(lines) + trailer


def quoted(value: str) -> str:
    """`value` as one shell word: in single quotes, within which only the quote itself means anything."""
    return "'" + value.replace("'", "'\\''") + "'"


def parse_raw(text: str, *, where: str = "env-file") -> dict[str, str]:
    """What ``docker run --env-file`` reads from `text`: the last line of a name counts.

    Raises UsageError, naming the line after `where`, for what docker refuses, and for a name without ``=``, which it
    would silently take from the machine it runs on.
    """
    env: dict[str, str] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = line.removesuffix("\r").lstrip(_BLANKS)
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        place = f"{where}, line {number}"
        if name.startswith(("export ", "unset ")):
            raise UsageError(
                f"{name.split()[0]!r} belongs to a shell", where=place, next="source this file, or use the raw form"
            )
        if not equals:
            raise UsageError(f"{name!r} has no value", where=place, next=f"write {name}= for an empty one")
        _check_name(name, place)
        env[name] = value
    return env


def _check_name(name: str, where: str = "env-file") -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be the name of a variable", where=where, next="use letters, digits and _, no digit first"
        )


def _comment_lines(comments: Sequence[str]) -> list[str]:
    """Each comment on one line. A backslash at its end would make systemd read the next line as comment too."""
    texts = (" ".join(comment.replace("\0", " ").split()).rstrip("\\ ") for comment in comments)
    return [f"# {text}" if text else "#" for text in texts]


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
