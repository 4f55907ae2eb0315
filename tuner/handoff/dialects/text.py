"""What the dialects share: names, comment lines, and refusals that say another way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuner.errors import UsageError
from tuner.handoff.cache import CACHE_DIR
from tuner.handoff.dialects.content import Content

__all__ = ["SHELL_HINT", "cache_lines", "check_name", "comments", "head", "joined", "refuse", "unset_line", "utf8"]

SHELL_HINT = "use --format shell, which carries any value"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(name: str, where: str = "env-file") -> None:
    """Raises UsageError for a name that no shell could set."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be the name of a variable", where=where, next="use letters, digits and _, no digit first"
        )


def refuse(name: str, why: str, *, next: str = SHELL_HINT) -> UsageError:
    """The error for the value of `name`, which this dialect can't carry."""
    return UsageError(why, where=name, next=next)


def utf8(env: Mapping[str, str], dialect: str) -> None:
    """Raises UsageError for a name that is none, and for bytes that are no UTF-8, which `dialect` would refuse."""
    for name, value in env.items():
        check_name(name)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise refuse(name, f"the value is not UTF-8, and {dialect} reads nothing else") from None


def comments(lines: Sequence[str]) -> list[str]:
    """Each of `lines` as one comment line, whatever stands in it. A backslash at its end would make systemd read the
    next line as comment too."""
    plain = ("".join(c if c.isprintable() else " " for c in line) for line in lines)
    texts = (" ".join(line.split()).rstrip("\\ ") for line in plain)
    return [f"# {text}" if text else "#" for text in texts]


def unset_line(content: Content, how: str = "") -> tuple[str, ...]:
    """For dialects that can't unset variables: which ones must not be set, and `how` that is done elsewhere."""
    if not content.unset:
        return ()
    return (f"This file can't unset variables, and these must not be set: {', '.join(content.unset)}{how}",)


def head(content: Content) -> tuple[str, ...]:
    """What the file is about, for a dialect that sets variables."""
    if content.merged or content.env.get("XLA_FLAGS") is None:
        return content.about
    return (*content.about, "XLA_FLAGS replaces the program's own; tune exec and tune export --merge-flags merge them")


def cache_lines(content: Content, how: str) -> tuple[str, ...]:
    """Where the sealed cache is, and `how` it gets to where the program runs."""
    if content.cache is None:
        return ()
    if content.bound:
        return (
            f"The compiled step is in {content.cache}: elsewhere, {how} and let {CACHE_DIR} name it.",
            f"Where it can't be had, leave out {', '.join(content.bound)}: without the cache the step is slower for it",
        )
    return (
        f"The compiled step is in {content.cache}: to load it, {how} and set",
        f"{CACHE_DIR}=/where/it/is/{content.cache.name}",
    )


def joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
