"""Commands about a run that can be typed as they stand: with what its own command said of store and program."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

__all__ = ["profile_command", "show_command"]

_STORE = ("--store",)
_PROGRAM = ("--knob", "--platform", "--launch", "--python", "--store")
"""Without these `tune profile` would trace another program, or look for the run elsewhere."""


def show_command(what: str, *, run: str, command: Sequence[str]) -> str:
    """``tune show`` of a trial or of ``--failed``. `run`: "" for the newest; `command`: the run's own."""
    return shlex.join(["tune", "show", what, *(["--run", run] if run else []), *_given(command, _STORE)])


def profile_command(workload: str, *, run: str, command: Sequence[str]) -> str:
    """``tune profile`` of the run's program under what `run` found, "" for the defaults. `command`: the run's own."""
    words = ["tune", "profile", workload, *(["--run", run] if run else []), *_given(command, _PROGRAM)]
    own = list(command)
    return shlex.join([*words, *(own[own.index("--") :] if "--" in own else [])])


def _given(command: Sequence[str], names: Collection[str]) -> list[str]:
    """Those options of `command` with their values, as they were written; the workload's own arguments are not ours."""
    words = list(command)
    ours = words[: words.index("--")] if "--" in words else words
    kept: list[str] = []
    for at, word in enumerate(ours):
        if word in names:
            kept += ours[at : at + 2]
        elif word.partition("=")[0] in names:
            kept.append(word)
    return kept
