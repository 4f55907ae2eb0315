"""What `build` returned: one step, or several that a unit of work runs so and so often, and what else it told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused, a_type

__all__ = ["ONLY", "Given", "Workload", "workload_of"]

ONLY = ""
"""The name of the step of a workload that has one."""

_PARTS = ("step", "args", "carry", "weight")
_WHOLE = ("step", "args", "carry", "steps", "check", "work", "others")
_STEP_FORMS = "(step, args), (step, args, weight), or something with step and args"


@dataclass(frozen=True)
class Given:
    """One step as it was handed over. `carry`: number of leading arguments that the leading outputs replace, None: find
    out. `weight`: how often a unit of work runs it."""

    step: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    carry: int | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Workload:
    """The steps by name. `work`: units of work that a unit (a step, or all steps by their weights) does. `others`: the
    program's other functions by name, each with its positional arguments."""

    steps: Mapping[str, Given]
    check: Callable[[Any, Any], Any] | None = None
    work: float | None = None
    others: Mapping[str, tuple[Any, tuple[Any, ...]]] = field(default_factory=dict)


def workload_of(returned: Any) -> Workload:
    """What `build` returned, as a Workload. Raises Refused(WORKLOAD) naming what is missing or wrong."""
    fields = _fields(returned, _WHOLE)
    if fields is None and isinstance(returned, tuple) and len(returned) == 2:
        fields = {"step": returned[0], "args": returned[1]}
    if fields is None:
        raise _refused(
            f"build() must return (step, args), or something with step and args, or with steps; "
            f"it returned {a_type(returned)}"
        )
    check, work = fields.get("check"), fields.get("work")
    if check is not None and not callable(check):
        raise _refused(f"check must be a function check(reference, candidate); it is {a_type(check)}")
    if work is not None:
        work = _positive(work, "work")
    others = _others(fields.get("others"))
    if "steps" not in fields:
        return Workload({ONLY: _given(fields, "", "what build() returned")}, check, work, others)
    if alone := [name for name in ("step", "args", "carry") if name in fields]:
        raise _refused(f"build() returned steps and {' and '.join(alone)}: with steps, each has its own")
    return Workload(_several(fields["steps"]), check, work, others)


def _several(steps: Any) -> dict[str, Given]:
    if not isinstance(steps, Mapping) or not steps:
        what = "empty" if isinstance(steps, Mapping) else a_type(steps)
        raise _refused(f"steps must map each step's name to {_STEP_FORMS}; it is {what}")
    found = {}
    for name, entry in steps.items():
        if not isinstance(name, str) or not name:
            raise _refused(f"steps: a step's name must be text, not {name!r}")
        where = f"steps[{name!r}]"
        fields = _fields(entry, _PARTS)
        if fields is None and isinstance(entry, tuple) and len(entry) in (2, 3):
            fields = dict(zip(("step", "args", "weight"), entry, strict=False))
        if fields is None:
            raise _refused(f"{where} must be {_STEP_FORMS}; it is {a_type(entry)}")
        found[name] = _given(fields, f"{where}: ", where)
    return found


def _others(others: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    if others is None:
        return {}
    if not isinstance(others, Mapping):
        raise _refused(f"others must map each function's name to (function, args); it is {a_type(others)}")
    found = {}
    for name, entry in others.items():
        if not isinstance(name, str) or not name:
            raise _refused(f"others: a function's name must be text, not {name!r}")
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], (tuple, list))):
            raise _refused(f"others[{name!r}] must be (function, args); it is {a_type(entry)}")
        found[name] = (entry[0], tuple(entry[1]))
    return found


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    """`value`'s entries or attributes; None if it is no mapping and has neither steps nor step and args."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "steps") or (hasattr(value, "step") and hasattr(value, "args")):
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return None


def _given(fields: Mapping[str, Any], lead: str, what: str) -> Given:
    """One step's fields, checked; `lead` begins a message about one of them, `what` names the whole."""
    if missing := [name for name in ("step", "args") if name not in fields]:
        raise _refused(f"{what} has no {' and no '.join(missing)}")
    args, carry, weight = fields["args"], fields.get("carry"), fields.get("weight", 1.0)
    if not isinstance(args, (tuple, list)):
        raise _refused(f"{lead}args must be the tuple of the step's positional arguments; it is {a_type(args)}")
    if not args:
        raise _refused(f"{lead}the step has no inputs: args is empty")
    if carry is not None and (isinstance(carry, bool) or not isinstance(carry, int) or carry < 0):
        raise _refused(f"{lead}carry must be the number of leading arguments that the outputs replace; it is {carry!r}")
    return Given(fields["step"], tuple(args), {}, carry, _positive(weight, f"{lead}weight"))


def _positive(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _refused(f"{what} must be a number; it is {a_type(value)}")
    if not (math.isfinite(value) and value > 0):
        raise _refused(f"{what} must be above zero and finite; it is {value!r}")
    return float(value)


def _refused(message: str) -> Refused:
    return Refused(FailureClass.WORKLOAD, message)
