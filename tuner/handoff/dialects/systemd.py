"""An ``EnvironmentFile=`` for a systemd service: ``NAME="value"``.

The reader's rules (systemd.exec(5)): in double quotes a backslash protects ``"``, ``\\``, a backquote and ``$``, line
breaks stand for themselves, and nothing is expanded, ``%`` included. A file that isn't UTF-8 is ignored whole.
"""

from __future__ import annotations

import re

from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.text import cache_lines, comments, head, joined, refuse, unset_line, utf8

__all__ = ["SYSTEMD"]

_SPECIAL = re.compile(r'(["\\`$])')


def _write(content: Content, file: str) -> str:
    utf8(content.set, "systemd")
    how = "; write UnsetEnvironment=" + " ".join(content.unset) + " in the unit"
    about = (
        *head(content),
        f"Load: EnvironmentFile=/path/to/{file} under [Service]. Without a leading -, so that a missing file is seen",
        "Not for Environment= lines, in which % and \\ mean something else. It counts more than these",
        *unset_line(content, how),
        *cache_lines(content, "make that folder readable for the service"),
    )
    lines = comments(about)
    for name, value in content.set.items():
        if "\0" in value:
            raise refuse(name, "the value holds NUL, which no variable can carry", next="take the NUL out")
        lines.append(f'{name}="{_escaped(value)}"')
    return joined(lines)


def _escaped(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", value)


SYSTEMD = Dialect(name="systemd", consumer="systemd EnvironmentFile=", file="best.systemd.env", write=_write)
