"""Constants that the compiler computes by itself, slowly and with every compile, as it complains of it in its log."""

from __future__ import annotations

import re

from tuner.profile.types import Finding

__all__ = ["folding"]

_TOOK = re.compile(r"The operation took ((?:[\d.]+(?:ms|s|m|h))+)\s*\nConstant folding an instruction[^\n]*\n\s*%(.*)")
_PART = re.compile(r"([\d.]+)(ms|s|m|h)")
_WORTH_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_CALL = re.compile(r"\S+ = (\S+?)(?:\{[^}]*\})? ([\w-]+)\(")


def folding(log: str, *, where: str = "") -> tuple[Finding, ...]:
    """What of a compile went into folding constants, by the compiler's own alarm: it is raised after a second, and
    tells the time once it is over. `log`: what the process printed. `where`: the line of a constant that was left."""
    found = [(_seconds(took), _CALL.match(text)) for took, text in _TOOK.findall(log)]
    if not found:
        return ()
    _, longest = max(found, key=lambda one: one[0])
    what = f" ({longest[2]} to {longest[1]})" if longest else ""
    text = (
        f"the compiler computes constants by itself for {sum(s for s, _ in found):.3g} s of every compile{what}. "
        "Compute them once outside the step, and pass them as arguments"
    )
    return (Finding(kind="folding", text=text, where=where),)


def _seconds(duration: str) -> float:
    """Of a text such as 1m2.5s."""
    return sum(float(number) * _WORTH_S[unit] for number, unit in _PART.findall(duration))
