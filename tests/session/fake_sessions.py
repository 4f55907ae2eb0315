"""Sessions on a made-up machine, and what they answer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tuner.knobs.config import Config
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, Compiled, OptionValue, Variant
from tuner.session.base import Launch
from tuner.session.fake import FakeSession
from tuner.session.fake_machine import FakeMachine
from tuner.session.noise import NoiseModel

QUIET = NoiseModel()

_FOLDER = tempfile.TemporaryDirectory()  # for what the sessions log; it goes with the process


def launch(env: Mapping[str, str | None] | None = None, *, name: str = "s", config: Config | None = None) -> Launch:
    return Launch(
        name=name,
        role="search",
        workload=Path("workload.py"),
        log=Path(_FOLDER.name, "s.log"),
        python="python",
        env=env or {},
        config=config or Config(),
    )


def started(machine: FakeMachine, env: Mapping[str, str | None] | None = None, *, name: str = "s") -> FakeSession:
    session = machine.factory(launch(env, name=name))
    session.start()
    return session


def compiled(session: FakeSession, handle: str, **options: OptionValue) -> Compiled:
    result = session.compile([Variant(id=handle, compiler_options=options)]).results[0]
    assert isinstance(result, Compiled)
    return result


def failed(session: FakeSession, **options: OptionValue) -> Failure:
    result = session.compile([Variant(id="x", compiler_options=options)]).results[0]
    assert isinstance(result, Failure)
    return result


def step_ms(session: FakeSession, *handles: str) -> list[float]:
    blocks = session.round([Arm(id=h, steps=10) for h in handles])
    return [1e3 * b.seconds / b.steps for b in blocks if isinstance(b, Block)]
