"""How noisy a run was, level by level; and the two claims, of the settings and of the sealed executable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, zip_longest

from tuner.knobs.config import DEFAULT
from tuner.measure.types import Verdict
from tuner.report.view import RunView
from tuner.report.wording import count, milliseconds, percent, ratio, settings, speedup
from tuner.store.records import Draws, SealRecord

__all__ = ["claims", "disturbances", "draws", "levels", "noise", "resolved"]

_NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)")


def levels(view: RunView) -> dict[str, float | None]:
    """Standard deviation of log time by level: of one step, of one round's ratio to the control, of a confirmation's
    turns, and between its pairs of processes; None where it wasn't measured."""
    baseline, pairs = view.baseline, view.confirm.noise if view.confirm else None
    return {
        "step": baseline.step_noise if baseline else None,
        "round": baseline.noise if baseline else None,
        "turn": pairs.round if pairs else None,
        "process": pairs.process if pairs else None,
    }


def noise(view: RunView) -> list[tuple[str, str, str]]:
    """Rows (level, standard deviation, what it is); empty before the baseline."""
    if view.baseline is None:
        return []
    told = {
        "step": "of one step, timed by itself",
        "round": f"of one round's ratio to the default, in one process{_disturbed(view)}",
        "turn": f"of one turn's ratio, in a pair of fresh processes{_pairs(view)}",
        "process": "between such pairs, beyond what their turns explain",
    }
    return [(name, percent(sd), told[name]) for name, sd in levels(view).items() if sd is not None]


def _disturbed(view: RunView) -> str:
    number = sum(view.disturbed.values())
    if not number:
        return ""
    return f"; {number} of {count(view.rounds, 'round')} disturbed, most often: {disturbances(view)[0][1]}"


def disturbances(view: RunView) -> list[tuple[int, str]]:
    """Rows (rounds, why), the most frequent first: reasons that differ in numbers alone are one, with their range."""
    kinds: dict[tuple[str, ...], list[tuple[list[str], int]]] = {}
    for why, rounds in view.disturbed.items():
        parts = _NUMBER.split(why)
        kinds.setdefault(tuple(parts[::2]), []).append((parts[1::2], rounds))
    rows = [
        (sum(rounds for _, rounds in of), _ranged(words, [numbers for numbers, _ in of])) for words, of in kinds.items()
    ]
    return sorted(rows, reverse=True)


def _ranged(words: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    """`words` with what stood between them in each case: one number, or the lowest and the highest."""
    spans = [sorted(set(column), key=float) for column in zip(*numbers, strict=True)]
    told = [f"{span[0]} to {span[-1]}" if len(span) > 1 else span[0] for span in spans]
    return "".join(chain.from_iterable(zip_longest(words, told, fillvalue="")))


def _pairs(view: RunView) -> str:
    confirm = view.confirm
    if confirm is None or not (confirm.redone or confirm.disturbed):
        return ""
    return f"; disturbed: {count(confirm.redone, 'pair')} timed again, {confirm.disturbed} counted nevertheless"


def resolved(view: RunView) -> str:
    """Whether the resolution that was promised was kept, and if not, why; "" where nothing was compared."""
    confirm, baseline = view.confirm, view.baseline
    if confirm is None or baseline is None or confirm.resolution is None or confirm.noise is None:
        return ""
    planned, found = _gain(baseline.resolution), _gain(confirm.resolution)
    if confirm.resolution <= baseline.resolution:
        return f"resolved {found}, planned {planned}"
    if confirm.noise.process > baseline.process_noise:
        why = f"processes differ by {percent(confirm.noise.process)}, planned for {percent(baseline.process_noise)}"
    elif confirm.noise.round > baseline.noise:
        why = f"turns differ by {percent(confirm.noise.round)}, rounds in the baseline by {percent(baseline.noise)}"
    else:
        why = f"decided after {count(confirm.pairs, 'pair')}"
    return f"resolved {found}, planned {planned}: {why}"


def draws(view: RunView) -> list[tuple[str, str]]:
    """Rows (whose, what fresh processes made of it): the compile lottery of the default and of each finalist."""
    return [(_whose(d), _drawn(d)) for d in (view.confirm.draws if view.confirm else ())]


def _whose(found: Draws) -> str:
    return "default" if found.config == DEFAULT else settings(found.config)


def _drawn(found: Draws) -> str:
    low, high = milliseconds(min(found.ms)), milliseconds(max(found.ms))
    programs = f", {count(found.programs, 'different program')}" if found.programs > 1 else ""
    return f"{count(len(found.ms), 'compile')}{programs}: {low} to {high}, spread {percent(found.spread)}"


def claims(view: RunView) -> list[tuple[str, str]]:
    """Rows (claim, what was found): of the settings over fresh compiles, and of the one executable that was sealed."""
    confirm, seal = view.confirm, view.seal
    if confirm is None or confirm.verdict is not Verdict.FASTER or confirm.estimate is None:
        return []
    pairs = count(confirm.pairs, "pair")
    rows = [("the settings, in a fresh compile", f"{ratio(confirm.estimate)} in {pairs}")]
    if seal is None:
        return rows
    if seal.sealed is not None:
        chosen = f", the best of {len(seal.draws_ms)} compiles" if seal.draws_ms else ""
        said = f"{ratio(seal.sealed)} in {count(seal.sealed_pairs, 'pair')}{chosen}"
    else:
        said = f"not measured by itself: {seal.sealed_note or _unmeasured(seal)}"
    return [*rows, ("the sealed executable", said)]


def _unmeasured(seal: SealRecord) -> str:
    """Why there is no claim where the log has no reason: a run that sealed a cache without timing it says nothing."""
    return "the run that sealed it did not time it" if seal.cache_requests else "nothing was sealed"


def _gain(log: float) -> str:
    return percent(speedup(log) - 1)
