"""Commands about a run that can be typed as they stand: with what its own command said of store and program."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

__all__ = ["fresh_command", "longer_command", "profile_command", "show_command"]

_STORE = ("--store",)
_PROGRAM = ("--knob", "--platform", "--launch", "--python", "--store")
"""Without these `tune profile` would trace another program, or look for the run elsewhere."""


def fresh_command(command: Sequence[str]) -> str:
    """The run's own `command`, measuring anew: as it stands it would show the result again. "" where there is none."""
    own, rest = _divided(command)
    return shlex.join([*own, "--fresh", *rest] if own else [])


def longer_command(command: Sequence[str], *, budget_s: float) -> str:
    """The run's own `command` with twice its budget of so many seconds; "" where either isn't known."""
    own, rest = _divided(command)
    if not own or not budget_s:
        return ""
    if "--budget" in own:
        at = own.index("--budget")
        del own[at : at + 2]
    kept = [word for word in own if not word.startswith("--budget=")]
    seconds = 2 * budget_s
    told = f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}s"
    return shlex.join([*kept, "--budget", told, *rest])


def show_command(what: str, *, run: str, command: Sequence[str]) -> str:
    """``tune show`` of a trial or of ``--failed``. `run`: "" for the newest; `command`: the run's own."""
    return shlex.join(["tune", "show", what, *(["--run", run] if run else []), *_given(command, _STORE)])


def profile_command(workload: str, *, run: str, command: Sequence[str]) -> str:
    """``tune profile`` of the run's program under what `run` found, "" for the defaults. `command`: the run's own."""
    words = ["tune", "profile", workload, *(["--run", run] if run else []), *_given(command, _PROGRAM)]
    return shlex.join([*words, *_divided(command)[1]])


def _divided(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words, and ``--`` with the workload's own arguments."""
    end = list(command).index("--") if "--" in command else len(command)
    return list(command[:end]), list(command[end:])


def _given(command: Sequence[str], names: Collection[str]) -> list[str]:
    """Those options of `command` with their values, as they were written; the workload's own arguments are not ours."""
    ours, _ = _divided(command)
    kept: list[str] = []
    for at, word in enumerate(ours):
        if word in names:
            kept += ours[at : at + 2]
        elif word.partition("=")[0] in names:
            kept.append(word)
    return kept
