"""A PGLE profile judged before it is used: empty, of another module, covering too little, or differing from run to run.

The compiler takes any profile and says that it uses it: costs of names that its module doesn't have are passed over
without a word, and what has no cost is estimated as it is without a profile. It looks an instruction up by its own
name, and an asynchronous start by that of what it wraps too: names that come from the program (`ppermute.3.1` in
`collective-permute-start`), from which no kind can be told.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from tuner.profile.hlo import Module, read_module
from tuner.protocol.messages import PgleReply
from tuner.protocol.wire import bytes_field, bytes_fields, double_field, doubles

__all__ = ["ProfileFacts", "costs_in", "facts_of", "profile_of", "unusable", "used_a_profile"]

# ProfiledInstructionsProto: field 1 is an entry, in which 1 is the name and 2 the microseconds.
_ENTRY, _NAME, _COST = 1, 1, 2
# Some versions put the module's fingerprint before the name, and pass over entries with another one. It is taken after
# autotuning, which chooses other kernels in another process.
_OF_MODULE = "::"
_FINGERPRINT = re.compile(r'fingerprint_before_lhs="([^"]*)"')
# What the compiler prints where it was handed a profile (as INFO).
_USED = "Using PGLE profile"

_COLLECTIVE = re.compile(
    r"(?:all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|ragged-all-to-all|reduce-scatter)"
    r"(?:-start)?"
)
# Take no time of their own on the device, or stand for others that do.
_FREE = frozenset(
    {
        "add-dependency",
        "after-all",
        "async-start",
        "bitcast",
        "call",
        "conditional",
        "constant",
        "domain",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "partition-id",
        "replica-id",
        "tuple",
        "while",
    }
)
# Below this share of operations, or of collectives, most of a schedule is estimated as it is without a profile. A rare
# branch, or what another version of the compiler makes no kernel of, has no cost either.
_LEAST_COVERED, _LEAST_COLLECTIVES = 0.25, 0.5
# So many names of collectives without a time are told.
_SHOWN = 3
# By so much of their sum the times may differ from run to run.
_MOST_SPREAD = 1.0


class ProfileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`entries`: costs in the profile, of which `foreign` name nothing in the module it was taken of. `operations`:
    what takes time on the device there, of which `covered` have a cost; `collectives` likewise, of which those without
    a cost are `untimed`, each as its name and, where it differs, that of what it wraps. `traces`: runs that gave costs.
    `spread`: how far these lie apart, summed over instructions, as a share of their sum; None of one run. `module`: the
    compiler's fingerprint of the module before it is scheduled, "" where it tells none."""

    entries: int
    foreign: int
    operations: int
    covered: int
    collectives: int
    collectives_covered: int
    traces: int
    spread: float | None
    module: str = ""
    untimed: tuple[str, ...] = ()


def costs_in(profile: bytes) -> dict[str, float]:
    """Microseconds by instruction. Raises ValueError if it is no such profile."""
    costs = {}
    for number, content in bytes_fields(profile):
        if number == _ENTRY:
            name = dict(bytes_fields(content)).get(_NAME, b"").decode(errors="replace")
            costs[name] = dict(doubles(content)).get(_COST, 0.0)
    return costs


def facts_of(reply: PgleReply) -> ProfileFacts:
    """What there is to judge. Raises ValueError for a reply that holds no profile, but something else."""
    text = zlib.decompress(base64.b64decode(reply.hlo)).decode(errors="replace") if reply.hlo else ""
    module = read_module(text)
    fingerprint = _fingerprint(text)
    raw = costs_in(base64.b64decode(reply.profile))
    costs = _own(raw, fingerprint)
    timed = _timed(module)
    untimed = {name for name in timed if name not in costs and reply.wrapped.get(name) not in costs}
    collectives = {name for name, opcode in timed.items() if _COLLECTIVE.fullmatch(opcode)}
    named = {*module.owners, *reply.wrapped.values()}
    traces = [_own(costs_in(base64.b64decode(trace)), fingerprint) for trace in reply.traces if trace]
    return ProfileFacts(
        entries=len(raw),
        foreign=len(raw) - sum(name in named for name in costs),
        operations=len(timed),
        covered=len(timed) - len(untimed),
        collectives=len(collectives),
        collectives_covered=len(collectives - untimed),
        traces=len([trace for trace in traces if trace]),
        spread=_spread([trace for trace in traces if trace]),
        module=fingerprint,
        untimed=tuple(_both(name, reply.wrapped) for name in sorted(collectives & untimed)),
    )


def unusable(facts: ProfileFacts) -> str:
    """Why the profile isn't used; "" if it is."""
    if not facts.entries:
        return (
            "the profile is empty: no kernel was timed (the platform can't, or another tool such as Nsight Systems is "
            "attached to the device)"
        )
    if facts.foreign == facts.entries:
        return f"the profile is of another module: none of its {facts.entries} entries names an instruction of this one"
    if facts.collectives_covered < _LEAST_COLLECTIVES * facts.collectives:
        shown = ", ".join(facts.untimed[:_SHOWN]) + (", …" if len(facts.untimed) > _SHOWN else "")
        return (
            f"the profile has times of {facts.collectives_covered} of {facts.collectives} collectives only. The trace "
            f"has no kernel under the name of {shown}, so that the compiler would place them by estimates as it does "
            "without a profile: they ran inside a captured graph or as copies that the tracer gives no name, or not at "
            "all in the steps that were traced"
        )
    if facts.covered < _LEAST_COVERED * facts.operations:
        return f"the profile has times of {facts.covered} of {facts.operations} operations only"
    if facts.spread is not None and facts.spread > _MOST_SPREAD:
        return (
            f"the runs behind the profile differ by {facts.spread:.0%} of their times: take more runs, on a quieter "
            "machine"
        )
    return ""


def profile_of(reply: PgleReply, facts: ProfileFacts) -> bytes:
    """The profile to compile with: its own entries alone, under their plain names, which any process's compile has."""
    data = base64.b64decode(reply.profile)
    costs = costs_in(data)
    if not any(_OF_MODULE in name for name in costs):
        return data
    return b"".join(
        bytes_field(_ENTRY, bytes_field(_NAME, name.encode()) + double_field(_COST, cost))
        for name, cost in sorted(_own(costs, facts.module).items())
    )


def used_a_profile(log: str) -> bool:
    """Whether the compiler says in what it printed that it was handed a profile."""
    return _USED in log


def _fingerprint(text: str) -> str:
    found = _FINGERPRINT.search(text)
    return found[1] if found else ""


def _own(costs: dict[str, float], fingerprint: str) -> dict[str, float]:
    """The costs of this module, by plain name."""
    own = {}
    for name, cost in costs.items():
        of, separator, plain = name.rpartition(_OF_MODULE)
        if not separator or of == fingerprint:
            own[plain] = cost
    return own


def _timed(module: Module) -> dict[str, str]:
    """Opcodes of the operations that take time on the device, by name."""
    found = {}
    for name, owner in module.owners.items():
        opcode = module.computations[owner].instructions[name].opcode
        if opcode not in _FREE and not opcode.endswith(("-done", "-update")):
            found[name] = opcode
    return found


def _both(name: str, wrapped: Mapping[str, str]) -> str:
    """An operation's own name, with that of what it wraps."""
    inner = wrapped.get(name, name)
    return name if inner == name else f"{name} ({inner})"


def _spread(traces: Sequence[dict[str, float]]) -> float | None:
    if len(traces) < 2:
        return None
    common = set.intersection(*(set(trace) for trace in traces))
    rows = [[trace[name] for trace in traces] for name in common]
    total = sum(median(row) for row in rows)
    return sum(max(row) - min(row) for row in rows) / total if total > 0 else None
