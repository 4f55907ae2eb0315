"""XLA_FLAGS of two sources in one text: what the place has where the settings are loaded, and what was measured.

The policy: a flag that both set gets the measured value, as if it stood last. Lists of names are joined, since XLA
itself adds up the occurrences of such a flag. Flags that only the place has stay, in front. If they change nothing, the
measured text stays byte for byte: it is part of the key of the compilation cache.
"""

from __future__ import annotations

import msgspec

from tuner.knobs.inherited import check
from tuner.protocol.xla_flags import Flag, merge, parse

__all__ = ["MergedFlags", "merge_flags"]

# Flags that hold a list, to which each further occurrence adds (seen in jaxlib 0.10 to 0.12).
_LISTS = frozenset({"xla_disable_hlo_passes", "xla_enable_hlo_passes_only"})


class MergedFlags(msgspec.Struct, frozen=True, kw_only=True):
    """`text`: of XLA_FLAGS. `kept`: flags of the place that were added; `overruled`: those that another value
    replaced; `joined`: names of lists that hold the entries of both. All as they were written."""

    text: str
    kept: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """What became of the place's flags, as one clause; "" if they change nothing."""
        parts = [("kept", self.kept), ("overruled", self.overruled), ("joined", self.joined)]
        return ", ".join(f"{what} {' '.join(flags)}" for what, flags in parts if flags)

    @property
    def changed(self) -> bool:
        """True if the text is not the measured one, under which the cache was sealed."""
        return bool(self.kept or self.joined)


def merge_flags(inherited: str, measured: str) -> MergedFlags:
    """Merge the text `inherited` where the settings are loaded with the `measured` one.

    Raises FlagsError if XLA would misread `inherited`.
    """
    check(inherited, where="inherited XLA_FLAGS")
    ours = {flag.name: flag for flag in parse(measured)}
    theirs = {flag.name: flag for flag in parse(inherited)}  # the last occurrence counts
    kept, overruled, lists = [], [], dict[str, str | None]()
    for name, flag in theirs.items():
        own = ours.get(name)
        if own is None:
            kept.append(flag)
        elif name in _LISTS:
            both = tuple(dict.fromkeys([*_entries(inherited, name), *_entries(measured, name)]))
            if set(both) != set(_entries(measured, name)):
                lists[name] = ",".join(both)
        elif _value(own) != _value(flag):
            overruled.append(flag.raw)
    text = merge(measured, lists)
    front = " ".join(flag.raw for flag in parse(inherited) if flag.name not in ours)
    return MergedFlags(
        text=f"{front} {text}".strip(" ") if front else text,
        kept=tuple(flag.raw for flag in kept),
        overruled=tuple(overruled),
        joined=tuple(lists),
    )


def _entries(text: str, name: str) -> tuple[str, ...]:
    """What all occurrences of the list `name` in `text` add up to."""
    values = [flag.value or "" for flag in parse(text) if flag.name == name]
    return tuple(entry for value in values for entry in value.split(",") if entry)


def _value(flag: Flag) -> str:
    """A bool that is only named is switched on."""
    return "true" if flag.value is None else flag.value
