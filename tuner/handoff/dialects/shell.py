"""Lines to be sourced by any POSIX shell: ``export NAME='value'``, ``unset NAME``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.handoff.cache import CACHE_DIR
from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.text import check_name, comments, head, joined, refuse

__all__ = ["SHELL", "beside", "free", "quoted", "sourced"]


def sourced(env: Mapping[str, str | None], *, about: Sequence[str] = (), trailer: str = "") -> str:
    """The lines, sorted by name, None being unset; `trailer` is shell text that follows.

    Carries every value that a variable can have, raw bytes (as surrogate escapes) included. Raises UsageError for a
    name that is none and for NUL.
    """
    lines = comments(about)
    for name, value in sorted(env.items()):
        check_name(name)
        if value is None:
            lines.append(f"unset {name}")
        elif "\0" in value:
            raise refuse(name, "the value holds NUL, which no variable can carry", next="take the NUL out")
        else:
            lines.append(f"export {name}={quoted(value)}")
    return joined(lines) + trailer


def quoted(value: str) -> str:
    """`value` as one shell word: in single quotes, within which only the quote itself means anything."""
    return "'" + value.replace("'", "'\\''") + "'"


def free(content: Content) -> dict[str, str | None]:
    """The variables that hold whether or not the sealed cache is found, which `beside` looks for."""
    return {n: value for n, value in content.env.items() if content.cache is None or n not in content.bound}


def beside(content: Content) -> str:
    """Shell text that finds the sealed cache beside the file, or else where it was written, and sets what is bound to
    it; "" without a cache."""
    if content.cache is None:
        return ""
    name = content.cache.name
    bound = "".join(f"    export {n}={quoted(v)}\n" for n in content.bound if (v := content.env.get(n)) is not None)
    return f"""\
# The compiled step is in the bundle's {name}. It is looked for beside this file, whose place bash knows, then
# where it was written; found nowhere, the step is compiled as usual.
tuner_bundle={quoted(str(content.cache.parent))}
if [ -n "${{BASH_SOURCE:-}}" ] && [ -d "$(dirname -- "$BASH_SOURCE")/{name}" ]; then
    tuner_bundle=$(CDPATH= cd -- "$(dirname -- "$BASH_SOURCE")" && pwd)
fi
if [ -d "$tuner_bundle/{name}" ]; then
    export {CACHE_DIR}="$tuner_bundle/{name}"
{bound}fi
unset tuner_bundle
"""


def _write(content: Content, file: str) -> str:
    about = (
        *head(content),
        f"Load: . ./{file} in sh, dash, bash or a job script. Running it as a program sets nothing",
        "Not for docker --env-file: quotes would become part of the values. For that there is --format docker",
    )
    return sourced(free(content), about=about, trailer=beside(content))


SHELL = Dialect(name="shell", consumer="sh, dash, bash", file="best.sh", write=_write, unsets=True)
