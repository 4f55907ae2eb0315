"""The run in one sentence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import msgspec

from tuner.knobs.config import DEFAULT, Config
from tuner.measure.types import Verdict
from tuner.report.commands import fresh_command, longer_command, show_command
from tuner.report.view import RunView
from tuner.report.wording import change, count, duration, percent, ratio, reason, setting, speedup, value
from tuner.store.records import ConfirmRecord

__all__ = ["Next", "headline", "next_step"]


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next: a command for a shell ("" if there is none to type) and what it is for."""

    command: str
    purpose: str


def headline(view: RunView) -> str:
    """The verdict with the numbers behind it; without one, how far the run came."""
    if view.confirm is None:
        return _without_verdict(view)
    sentence = _verdict(view, view.confirm)
    if view.unfinished and (view.interrupted or view.exit_code is not None):
        sentence += f"; {'interrupted' if view.interrupted else 'stopped'} in {view.unfinished}"
    return sentence


def _verdict(view: RunView, confirm: ConfirmRecord) -> str:
    pairs = f"{count(confirm.pairs, 'pair')} of fresh processes"
    measured = f"{ratio(confirm.estimate)} in {pairs}" if confirm.estimate else ""
    control = value(confirm.control_ms, confirm.objective) if confirm.control_ms > 0 else ""
    if confirm.verdict is Verdict.FASTER and confirm.estimate:
        values = change(confirm.control_ms, confirm.best_ms, confirm.objective)
        return f"faster: {ratio(confirm.estimate)}, {values}, confirmed in {pairs}"
    if view.all_failed:
        return _sentence("no candidate could be timed: keep the defaults", f"{view.failed_total} failed", control)
    if not confirm.finalists:
        why = "nothing was worth confirming" if view.tried else "nothing was tried"
        return _sentence("no gain found: keep the defaults", why, control)
    if confirm.verdict is Verdict.UNSTABLE:
        claim = f"not confirmed: {measured}" if measured else ""
        return _sentence("unstable: keep the defaults", confirm.unstable, claim, control)
    if confirm.verdict is Verdict.SAME:
        return _sentence("no significant gain: keep the defaults", measured, control)
    failures = [f.failure for f in confirm.finalists if f.failure is not None]
    failed = "every finalist failed in a fresh process" if len(failures) == len(confirm.finalists) else ""
    if failed:
        failed += f", {failures[0].kind.value}: {reason(failures[0])}"
    smallest = confirm.resolution or (view.baseline.resolution if view.baseline else None)
    resolution = f"gains below {percent(smallest)} can't be told here" if smallest else ""
    return _sentence("unclear: keep the defaults", failed or measured, control, "" if failed else resolution)


def _sentence(head: str, *details: str) -> str:
    kept = "; ".join(detail for detail in details if detail)
    return f"{head} ({kept})" if kept else head


def _without_verdict(view: RunView) -> str:
    if not view.run and not view.stages and not view.unfinished_s and not view.trials:
        return "nothing has run yet"
    after = duration(view.spent.total_s)
    best = view.best_trial
    # Only what looks like a gain is worth a word, and only as what it is: the best of many noisy numbers.
    faster = speedup(-best.value) if best and best.value is not None else 1.0
    looks = f"; the best so far, {faster:.2f}x, is not confirmed" if faster > 1 else ""
    if view.interrupted:
        return f"interrupted in {view.unfinished} after {after}: no verdict{looks}"
    if view.exit_code is None:
        return f"unfinished, in {view.unfinished} after {after}: no verdict{looks}"
    why = _reason(view)
    return f"stopped in {view.unfinished} after {after}: no verdict{f' ({why})' if why else looks}"


def _reason(view: RunView) -> str:
    """What ended the run: a session that died, or the default itself failing."""
    defaults = [entry for entries in view.failures.values() for entry in entries if entry.config == DEFAULT]
    failures = [entry.failure for entry in defaults] + [e.failure for e in view.session_failures if e.failure]
    return f"{failures[-1].kind.value}: {reason(failures[-1])}" if failures else ""


def next_step(view: RunView, files: Mapping[str, str]) -> Next:
    """What to do next. `files`: those of the run, by name ("shell", "env", …)."""
    again = shlex.join(view.command)
    if view.unfinished and (view.interrupted or view.exit_code is None):
        return Next(command=again, purpose="goes on where this ended")
    if view.confirm is None and not view.unfinished:
        return Next(command=again, purpose="starts the run")
    if view.confirm is None or view.all_failed or _none_held(view.confirm):
        command = show_command("--failed", run="", command=view.command)
        return Next(command=command, purpose="shows every failure with its log and the command to repeat it")
    if view.confirm.verdict is Verdict.FASTER:
        if "shell" in files:
            return Next(
                command=f". {shlex.quote(files['shell'])}",
                purpose=f"in the shell that starts your program{_by_hand(view, view.confirm.chosen)}",
            )
        return Next(command=again, purpose="builds the files that are missing")
    if view.confirm.verdict is Verdict.UNSTABLE:
        return Next(command=fresh_command(view.command), purpose=_steadier(view))
    skipped = view.counts.left.get("skipped", 0)
    if view.confirm.verdict is Verdict.UNCLEAR:
        reach = f" and reaches more of the {count(skipped, 'knob')} that had no room" if skipped else ""
        longer = longer_command(view.command, budget_s=float(view.options.get("budget_s", 0.0)))
        means = "in twice the time" if longer else "a larger --budget"
        return Next(command=longer, purpose=f"{means} resolves smaller gains{reach}")
    if not view.tried:
        why = f"a larger --budget has room for {count(skipped, 'knob')}" if skipped else "no setting applies here"
        return Next(command="", purpose=f"nothing was tried: {why}")
    untried = f"; {count(skipped, 'knob')} had no room in the budget: a larger one tries more" if skipped else ""
    return Next(command="", purpose=f"nothing: the defaults are as fast as anything tried{untried}")


def _none_held(confirm: ConfirmRecord) -> bool:
    """True if there were finalists, and none of them worked in the form that would have been emitted."""
    return bool(confirm.finalists) and all(finalist.failure is not None for finalist in confirm.finalists)


def _by_hand(view: RunView, chosen: Config) -> str:
    """What the files can't set, since no variable carries it: arguments of build(), and how processes are laid out."""
    carriers = {knob.name: knob.carrier for knob in view.probe.knobs} if view.probe else {}
    left = [setting(n, v) for n, v in chosen.settings if carriers.get(n) in ("workload", "layout")]
    return f"; no variable carries {', '.join(left)}: start it that way yourself" if left else ""


def _steadier(view: RunView) -> str:
    """How a machine becomes steady enough. What runs on its cores disturbs steps on a card too: they are launched
    from there."""
    identity = view.probe.environment.identity if view.probe else {}
    on_card = identity.get("platform") in ("gpu", "cuda", "rocm", "tpu")
    more = "a cool card and locked clocks help" if on_card else "a CPU quota must not bind"
    return f"measures anew, once nothing else runs here; or on another machine; {more}"
