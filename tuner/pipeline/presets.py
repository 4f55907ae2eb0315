"""Stage 3, presets: published sets, and what was best for this program or one like it, are always raced."""

from __future__ import annotations

import msgspec

from tuner.errors import StoreError
from tuner.knobs import DEFAULT, Config, applies, split
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.evaluate import Plan, evaluate, measured
from tuner.pipeline.warm import look_around, starts
from tuner.store.records import BaselineRecord, PresetsRecord, ProbeRecord

__all__ = ["run_presets"]


def run_presets(run: Run, benches: Benches) -> PresetsRecord:
    """Race what was best for this program or ones like it, and the presets that apply here. A preset that needs a knob
    which isn't live leaves by name; what acts on collectives that the program hasn't is left out of it, as it would do
    nothing. Where the budget has no room for this stage, the likeliest alone is timed, in the
    session that lives anyway."""
    known = _known(run)
    if not known:
        look_around(run)
    if run.budget.skips("presets"):
        at_home = {c: label for c, label in (known or starts(run)).items() if split(c, run.space)[0] == DEFAULT}
        labels = dict(list(at_home.items())[:1])
    else:
        labels = starts(run) | _presets(run) | known
    plan = Plan(stage="presets", seconds=run.budget.share_s("presets"), half_width=run.margin / 2, guard=True)
    trials = evaluate(run, benches, labels, plan, labels=labels)
    return PresetsRecord(measured=tuple(measured(run, trials)))


def _presets(run: Run) -> dict[Config, str]:
    labels: dict[Config, str] = {}
    idle = _idle(run)
    for preset in run.space.presets:
        settings = {name: value for name, value in preset.settings.items() if name not in idle}
        reason = applies(preset.when, run.facts)
        missing = sorted(set(settings) - set(run.live))
        if reason is None and missing:
            reason = f"it sets {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not live here"
        if reason is None and not settings:
            reason = "all that it sets acts on collectives that the program hasn't"
        if reason is not None:
            run.notice(f"preset {preset.name} is not raced: {reason}")
            continue
        labels.setdefault(Config.of(settings), f"preset {preset.name}")
    return labels


def _idle(run: Run) -> set[str]:
    """The knobs that would apply here, did the program but have the collectives that they act on."""
    apart = [k for k in run.space.knobs if k.when.collectives is not None and applies(k.when, run.facts) is not None]
    return {k.name for k in apart if applies(msgspec.structs.replace(k.when, collectives=None), run.facts) is None}


def _known(run: Run) -> dict[Config, str]:
    """The best configs that the index knows for this program here."""
    program = run.record("baseline", BaselineRecord).program
    environment = run.record("probe", ProbeRecord).environment
    try:
        found = run.index.best_for(program, environment.key, objective=run.options.objective)
    except StoreError as error:
        run.notice(f"earlier results could not be looked up: {error.what}")
        return {}
    return {k.config: f"best of {k.run}" for k in found if k.config.names <= set(run.live)}
