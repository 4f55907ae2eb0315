"""How a config reaches the program: compile options, configuration, environment, arguments, and its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from tuner.errors import FlagsError, UsageError
from tuner.knobs.config import Config
from tuner.knobs.inherited import check
from tuner.knobs.pgle import Delivery, delivered
from tuner.knobs.space import SearchSpace
from tuner.knobs.values import typed
from tuner.protocol.messages import OptionValue, Variant
from tuner.protocol.xla_flags import merge

__all__ = ["EFFORT_LEVELS", "XLA_FLAGS", "environment", "fingerprint", "split", "variant"]

XLA_FLAGS = "XLA_FLAGS"

EFFORT_LEVELS: Mapping[str, int] = {"O0": 9, "O1": 19, "O2": 29, "O3": 39}
"""The numbers that every supported jax takes as a compile option; the names only work from 0.11.1 on."""


def split(config: Config, space: SearchSpace) -> tuple[Config, Config]:
    """`config` by lane: (environment, option)."""
    lanes: dict[str, dict[str, str]] = {"environment": {}, "option": {}}
    for name, value in config.settings:
        lanes[space.knob(name).lane][name] = value
    return Config.of(lanes["environment"]), Config.of(lanes["option"])


def variant(handle: str, option: Config, space: SearchSpace, *, profile: str | None = None) -> Variant:
    """What a session compiles for the option-lane settings `option`, under the id `handle`. `profile`: base64 of the
    PGLE profile that was taken under them, where they ask for one.

    Raises UsageError for a setting that needs a new process, and where a profile is missing.
    """
    options: dict[str, OptionValue] = {}
    jax_config: dict[str, OptionValue] = {}
    for name, text in option.settings:
        knob = space.knob(name)
        if knob.lane != "option":
            raise UsageError(f"{name} needs a new process, it can't change in a living one", where=handle)
        match knob.carrier:
            case "xla_flag":
                options[name] = typed(knob.type, text)
            case "effort":
                options[name] = EFFORT_LEVELS[text]
            case "jax_config":
                jax_config[name] = typed(knob.type, text)
            case "pgle" if profile is None:
                raise UsageError(f"{name} needs a profile to be compiled with", where=handle)
    return Variant(id=handle, compiler_options=options, jax_config=jax_config, profile=profile)


def environment(
    config: Config, space: SearchSpace, inherited: Mapping[str, str], *, delivery: Delivery | None = None
) -> dict[str, str | None]:
    """The whole of `config`, both lanes, as changes to the `inherited` environment; None removes a variable.

    XLA_FLAGS is the inherited text with our flags merged into it; flags that `config` leaves alone keep their exact
    text, and one that is inherited under an old name gives way to its new one. Workload knobs go to build(), the layout
    to whoever starts the processes: they are not here. `delivery`: how a PGLE profile reaches the program. Equal
    arguments give equal bytes. Raises FlagsError if flags must be merged into a text that XLA would misread.
    """
    changes: dict[str, str | None] = {}
    flags: dict[str, str | None] = {}
    for name, text in config.settings:
        knob = space.knob(name)
        match knob.carrier:
            case "xla_flag":
                flags.update(dict.fromkeys(knob.aliases))
                flags[name] = text
            case "env":
                changes[name] = text
            case "jax_config":
                changes[name.upper()] = text
            case "effort":
                changes[f"JAX_{name.upper()}"] = text
            case "pgle":
                variables, more = delivered(text, delivery or Delivery())
                changes.update(variables)
                flags.update(more)
            case "workload" | "layout":
                pass
    if flags:
        changes[XLA_FLAGS] = _merged(inherited.get(XLA_FLAGS, ""), flags)
    return dict(sorted(changes.items()))


def fingerprint(code: str, covers: Literal["hlo", "hlo+codegen"], config: Config, space: SearchSpace) -> str:
    """What makes two candidates the same program: 16 hex digits.

    Two parts: `code`, the hash of what the compiler made, and the values of all set knobs whose effect that hash can't
    show. It `covers` the optimised HLO, and the machine code only where that can be read. A workload's knobs show in
    the program itself.
    """
    shown = {"hlo", "codegen"} if covers == "hlo+codegen" else {"hlo"}
    hidden = [(name, value) for name, value in config.settings if space.knob(name).acts_on not in shown]
    return hashlib.sha256(msgspec.json.encode([code, hidden])).hexdigest()[:16]


def _merged(base: str, flags: Mapping[str, str | None]) -> str:
    check(base)
    try:
        return merge(base, flags)
    except OSError as error:  # it names a file, and the file went since it was checked
        raise FlagsError(f"{base!r} can't be read: {error.strerror}", where=XLA_FLAGS) from None
