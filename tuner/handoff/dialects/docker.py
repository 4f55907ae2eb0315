"""Raw ``NAME=value`` lines: ``docker run --env-file``, podman, ``kubectl create configmap --from-env-file``.

The readers' rules (docker's kvfile package, kubectl's env-file reader): UTF-8, at most 64 KiB a line, a byte-order mark
and blanks in front of a line are dropped, ``#`` begins a comment line, and the value is everything behind the first
``=``, byte for byte, blanks at its end included. Nothing can be quoted or escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuner.errors import UsageError
from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.text import (
    SHELL_HINT,
    cache_lines,
    check_name,
    comments,
    head,
    joined,
    refuse,
    unset_line,
    utf8,
)

__all__ = ["DOCKER", "parse_raw", "raw"]

_LONGEST_BYTES = (64 << 10) - 2  # Go's bufio.Scanner gives up at 64 KiB, the line's end included
_BLANKS = " \t\v\f"  # what Go's and Python's readers strip in front of a line


def raw(env: Mapping[str, str], *, about: Sequence[str] = ()) -> str:
    """The lines, sorted by name, under comment lines that say what they are `about`. "" is a value.

    Raises UsageError for what can't be carried: a name that is none, line breaks, NUL, other bytes than UTF-8, a line
    of 64 KiB, and a value in quotes, which docker's versions read differently.
    """
    utf8(env, "docker")
    lines = comments(about)
    for name, value in sorted(env.items()):
        if bad := re.search(r"[\r\n\0]", value):
            raise refuse(
                name,
                f"the value holds {bad.group()!r}, which no raw env-file can carry",
                next=f"write the value on one line, or {SHELL_HINT}",
            )
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            raise refuse(name, "the value is in quotes, which some versions of docker keep and others take off")
        line = f"{name}={value}"
        if len(line.encode()) > _LONGEST_BYTES:
            raise refuse(name, "the line is longer than 64 KiB, where docker and kubectl stop reading")
        lines.append(line)
    return joined(lines)


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
        check_name(name, place)
        env[name] = value
    return env


def _write(content: Content, file: str) -> str:
    about = (
        *head(content),
        f"Load: docker run --env-file {file} (or podman), kubectl create configmap NAME --from-env-file={file}",
        "Don't source it: a shell would keep the first word of a value alone. For that there is --format shell",
        *unset_line(content),
        *cache_lines(content, "copy or mount that folder"),
    )
    return raw(content.set, about=about)


DOCKER = Dialect(name="docker", consumer="docker run --env-file", file="best.env", write=_write)
