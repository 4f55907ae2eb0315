"""The workload's own knobs: from what its file declares, and back to build()'s arguments."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

from tuner.errors import WorkloadError
from tuner.knobs.config import Config
from tuner.knobs.knob import UNSET, Knob
from tuner.knobs.space import SearchSpace
from tuner.knobs.values import guess_type, typed
from tuner.protocol.messages import OptionValue

__all__ = ["WORKLOAD_GROUP", "from_workload", "workload_knobs"]

WORKLOAD_GROUP = "workload"


def from_workload(
    declared: Mapping[str, Sequence[str]], *, source: str, defaults: Mapping[str, str] | None = None
) -> tuple[Knob, ...]:
    """Knobs for a workload's ``KNOBS`` (name → value texts), in the order declared; `source` names the file, `defaults`
    has the texts of build()'s own defaults, as far as they are known.

    "unset" (build()'s own default) is offered first, and stands for that value where it is declared too: a session
    spent on it would time the default against itself. Raises WorkloadError for a name that can't be an argument and for
    a knob without values.
    """
    knobs = []
    for name, given in declared.items():
        texts = list(dict.fromkeys(t.lower() if t in ("True", "False") else t for t in given if t != UNSET))
        own = (defaults or {}).get(name)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise WorkloadError(f"KNOBS has {name!r}, which can't be an argument of build()", where=source)
        if not texts:
            raise WorkloadError(f"KNOBS[{name!r}] offers no value", where=source, next="give it at least one")
        others = [t for t in texts if t != own]
        if not others:
            raise WorkloadError(
                f"KNOBS[{name!r}] offers nothing but {own}, which is build()'s own default",
                where=source,
                next="give it another value, or take it out",
            )
        knobs.append(
            Knob(
                name=name,
                carrier="workload",
                type=guess_type(texts),
                values=(UNSET, *others),
                lane="environment",
                acts_on="hlo",
                group=WORKLOAD_GROUP,
                why="declared by the workload" + (f"; unset is build()'s own {own}" if own is not None else ""),
                source=source,
            )
        )
    return tuple(knobs)


def workload_knobs(config: Config, space: SearchSpace) -> dict[str, OptionValue]:
    """The arguments that `config` gives to build(), each of its knob's type."""
    arguments = {}
    for name, text in config.settings:
        knob = space.knob(name)
        if knob.carrier == "workload":
            arguments[name] = typed(knob.type, text)
    return arguments
