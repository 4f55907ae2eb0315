"""An ``env_file:`` for docker compose: ``NAME='value'``.

The reader's rules (compose-go's dotenv package): a value in single quotes stands as it is, but can't hold a single
quote or end in a backslash. In double quotes ``$`` and backslashes mean something, without quotes ``#`` and blanks too.
Carriage returns in front of line breaks are dropped before anything is read.
"""

from __future__ import annotations

import re

from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.text import cache_lines, comments, head, joined, refuse, unset_line, utf8

__all__ = ["COMPOSE"]


def _write(content: Content, file: str) -> str:
    utf8(content.set, "docker compose")
    about = (
        *head(content),
        f"Load: env_file: {file} under the service. What stands under its environment: counts more than this file",
        "Not for docker run --env-file, which keeps the quotes. For that there is --format docker",
        *unset_line(content),
        *cache_lines(content, "mount that folder"),
    )
    return joined([*comments(about), *(f"{name}={_quoted(name, value)}" for name, value in content.set.items())])


def _quoted(name: str, value: str) -> str:
    if bad := re.search(r"[\r\0]", value):
        raise refuse(name, f"the value holds {bad.group()!r}, which docker compose can't carry")
    if "'" not in value and not value.endswith("\\"):
        return f"'{value}'"
    if not re.search(r'["$\\]', value):
        return f'"{value}"'
    raise refuse(
        name,
        "the value needs both kinds of quotes, and docker compose can't escape any",
        next="use --format docker and write `format: raw` under env_file: (docker compose 2.30 and later)",
    )


COMPOSE = Dialect(name="compose", consumer="docker compose env_file:", file="best.compose.env", write=_write)
