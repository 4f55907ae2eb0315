"""Writes the events that a run leaves, by running sessions of any kind: what replays are tested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.knobs.config import DEFAULT, Config
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, Variant
from tuner.session.base import Launch, Role, SessionFactory
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    NumericsCompared,
    RoundTimed,
    SessionClosed,
    SessionStarted,
    TrialFinished,
)

CONTROL = "control"


def launch_of(config: Config = DEFAULT, *, name: str = "home", role: Role = "home") -> Launch:
    """A launch whose environment-lane setting is `config`, all of it flags."""
    flags = " ".join(f"--{n}={v}" for n, v in config.settings)
    return Launch(
        name=name,
        role=role,
        workload=Path("workload.py"),
        log=Path(f"{name}.log"),
        python="python",
        env={"XLA_FLAGS": flags} if flags else {},
        config=config,
    )


def variant_of(config: Config, *, base: Config = DEFAULT, id: str = "") -> Variant:
    """The variant for `config` in a session of `base`."""
    own = base.as_dict()
    options = {n: v for n, v in config.settings if own.get(n) != v}
    return Variant(id=id or config.key, compiler_options=dict(options))


def record(
    factory: SessionFactory,
    launch: Launch,
    configs: Sequence[Config],
    *,
    reference: Path,
    rounds: int = 30,
    twin: bool = False,
    skip: Mapping[int, Sequence[Config]] | None = None,
) -> list[AnyEvent]:
    """The events of one session: `configs` compiled beside the control, checked, and timed in `rounds` rounds.

    `twin`: the control compiled once more. `skip`: configs that have left the race, by round.
    """
    session, name = factory(launch), launch.name
    events: list[AnyEvent] = []
    loaded = session.start()
    events.append(
        SessionStarted(
            session=name, role=launch.role, config=launch.config, env=dict(launch.env), loaded=loaded, start_s=3.0
        )
    )
    variants = {launch.config: Variant(id=CONTROL), **{c: variant_of(c, base=launch.config) for c in configs}}
    handles: dict[str, Config] = {}
    for config, variant in variants.items():
        result = session.compile([variant]).results[0]
        if isinstance(result, Failure):
            events.append(_failed(name, config, result))
            continue
        handles[variant.id] = config
        events.append(CandidateCompiled(session=name, config=config, compiled=result, fingerprint=result.code))
    if not reference.exists():
        session.numerics(CONTROL, steps=3, reference=reference, save=True)
        for nudge in (False, True, True):
            reply = session.numerics(CONTROL, steps=3, reference=reference, nudge=nudge)
            assert not isinstance(reply, Failure)
            events.append(NumericsCompared(session=name, config=launch.config, purpose="null", reply=reply))
    for handle, config in handles.items():
        reply = session.numerics(handle, steps=3, reference=reference)
        if handle != CONTROL and not isinstance(reply, Failure):
            events.append(NumericsCompared(session=name, config=config, purpose="gate", reply=reply, passed=True))
    if twin:
        session.compile([Variant(id="twin")])
    for number in range(rounds):
        gone = (skip or {}).get(number, ())
        racing = [h for h, c in handles.items() if h != CONTROL and c not in gone] + ["twin"] * twin
        entries = session.round([Arm(id=h, steps=5) for h in (CONTROL, *racing, CONTROL)])
        blocks = tuple(b for b in entries if isinstance(b, Block))
        events.append(RoundTimed(session=name, stage="screen", control=CONTROL, blocks=blocks))
        for handle, entry in zip((CONTROL, *racing), entries, strict=False):
            if isinstance(entry, Failure):
                events.append(_failed(name, handles.pop(handle), entry))
    session.close()
    events.append(SessionClosed(session=name, failure=session.ended))
    return events


def _failed(session: str, config: Config, failure: Failure) -> TrialFinished:
    return TrialFinished(
        number=0, stage="screen", session=session, config=config, value=None, estimate=None, failure=failure
    )
