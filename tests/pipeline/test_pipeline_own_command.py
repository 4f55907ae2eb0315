"""`--seal-with`: production's own command fills the sealed cache and must find everything in it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.pipeline.run import Outcome
from tuner.session import FakeMachine
from tuner.store.events import Notice, StageFinished
from tuner.store.records import SealRecord

pytestmark = pytest.mark.slow

# As jax would say it: one module for each name in the arguments, found if the cache has it, and put there if not.
COMMAND = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
assert "--xla_good=true" in os.environ["XLA_FLAGS"], os.environ["XLA_FLAGS"]
for name in sys.argv[1].split(","):
    key = f"{name}-{os.getpid()}" if name == "changing" else name
    hit = (folder / key).exists()
    print("Persistent compilation cache hit for" if hit else "PERSISTENT COMPILATION CACHE MISS for",
          f"'jit_{name}' with key '{key}'")
    if not hit:
        (folder / key).write_text("1.0")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def command(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(COMMAND)
    return lambda names, code=0: shlex.join([sys.executable, str(script), names, str(code)])


def machine() -> FakeMachine:
    return FakeMachine(effects={("xla_good", "true"): -0.05}, seed=1)


def seals(outcome: Outcome) -> list[SealRecord]:
    return [e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, SealRecord)]


def notices(outcome: Outcome) -> str:
    return "\n".join(e.text for e in outcome.events if isinstance(e, Notice))


def test_what_the_command_compiles_is_sealed_and_found_again(tune_on, command):
    outcome = tune_on(machine(), seal_with=command("step,eval"))
    (sealed,) = seals(outcome)
    own = sealed.command
    assert own is not None
    assert (own.code, own.requests, own.hits, own.added) == (0, 2, 2, 2)
    assert own.command == command("step,eval")
    cache = Path(sealed.bundle) / "jax_cache"
    assert {"step", "eval"} <= {entry.name for entry in cache.iterdir()}
    assert sealed.cache_hits == sealed.cache_requests > 0
    assert "train.py" not in notices(outcome)


def test_what_is_not_found_again_is_told_with_the_reason(tune_on, command):
    outcome = tune_on(machine(), seal_with=command("step,changing"))
    (sealed,) = seals(outcome)
    assert sealed.command is not None
    assert (sealed.command.requests, sealed.command.hits) == (2, 1)
    assert "1 of 2 compiles weren't found in the cache: jit_changing: another key" in notices(outcome)


def test_a_command_that_fails_or_says_nothing_is_told_and_costs_no_result(tune_on, command):
    outcome = tune_on(machine(), seal_with=command("step", 7))
    assert "failed with exit status 7 the first time" in notices(outcome)
    assert seals(outcome)[0].command.hits == 1
    silent = tune_on(machine(), seal_with=shlex.join([sys.executable, "-c", "pass"]), fresh=True)
    assert "looked for nothing in the sealed cache" in notices(silent)
    assert seals(silent)[0].command.requests == 0


def test_a_finished_run_is_sealed_again_with_the_command_and_nothing_else_is_repeated(tune_on, command):
    first = tune_on(machine())
    events = len(first.events)
    again = tune_on(machine(), seal_with=command("step"))
    assert again.run == first.run
    assert {e.stage for e in again.events[events:] if isinstance(e, StageFinished)} == {"seal", "report"}
    plain, own = seals(again)
    assert (plain.command, own.command.hits) == (None, 1)
    assert own.number == plain.number + 1
    assert Path(plain.bundle).is_dir()
    third = tune_on(machine(), seal_with=command("step"))
    assert len(third.events) == len(again.events)
    plainly = tune_on(machine())
    assert len(plainly.events) == len(again.events)


def test_a_command_that_is_no_command_is_refused_before_anything_starts(tune_on):
    with pytest.raises(UsageError, match="can't be split"):
        tune_on(machine(), seal_with="python 'train.py")
