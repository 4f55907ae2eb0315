"""Checks of the environment: names that nothing reads, flags that would be misread, pins."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from tuner.errors import FlagsError
from tuner.handoff.doctor.facts import Facts
from tuner.handoff.doctor.finding import Finding, fail, ok, warn
from tuner.handoff.doctor.names import BELOW, CONFUSED, FAMILIES, LABELS, NCCL
from tuner.knobs.inherited import PIN_PREFIXES, check, pins
from tuner.session.failures import log_text

__all__ = ["flags", "inherited_pins", "look_alikes"]

_XLA_FLAGS = "XLA_FLAGS"
_ALIKE = 0.82


def look_alikes(facts: Facts) -> Iterator[Finding]:
    """Variables that this version doesn't read and that resemble one that it does. Nothing else would tell."""
    report = facts.checkup
    ours = {*report.names, *report.config_names}
    nccl = {name for name in ours if name.startswith("NCCL_")} or NCCL
    known = (ours if report.config_names else set()) | nccl | BELOW
    found = False
    for name in sorted(facts.env):
        if name in LABELS or name in known - set(CONFUSED) or not name.startswith((*FAMILIES, *CONFUSED)):
            continue
        why, meant = CONFUSED.get(name, ("", ""))
        if not meant:
            family = name.partition("_")[0]
            why = f"{'this version of jax' if family in ('JAX', 'XLA') else family} does not read it"
            meant = next(iter(get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)), "")
        if meant:
            found = True
            yield warn("variables", f"{name}: {why}", f"did you mean {meant}?")
        elif name.startswith("JAX_") and report.config_names:
            found = True
            yield warn("variables", f"{name}: jax {report.jax} does not read it", f"unset {name}")
    if not found:
        yield ok("variables", "none that only looks like one that is read")


def flags(facts: Facts) -> Iterator[Finding]:
    """XLA_FLAGS: its grammar, and whether XLA took it."""
    text = facts.env.get(_XLA_FLAGS)
    if text is None:
        yield ok(_XLA_FLAGS, "not set")
        return
    try:
        check(text)
    except FlagsError as error:
        yield fail(_XLA_FLAGS, error.what, "correct or unset XLA_FLAGS")
        return
    refused = [line for line in facts.checkup.log if _XLA_FLAGS in line]
    if refused and not facts.checkup.platform:
        said = log_text(refused[-1])
        yield fail(
            _XLA_FLAGS, f"this jaxlib ends the process: {said}", "take the flag out; names come and go with versions"
        )
    elif text:
        yield ok(_XLA_FLAGS, f"inherited, and part of every config: {text}")
    else:
        yield ok(_XLA_FLAGS, "set and empty")


def inherited_pins(facts: Facts) -> Iterator[Finding]:
    """Variables that no knob touches, because someone set them for this machine."""
    found = sorted(pins(facts.env))
    if found:
        yield ok("pins", f"{', '.join(found)}: kept as they are; --override NAME lets one be tuned")
    else:
        yield ok("pins", f"no {', '.join(f'{prefix}*' for prefix in PIN_PREFIXES)} is set")
