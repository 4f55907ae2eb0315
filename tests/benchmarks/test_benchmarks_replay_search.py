"""A made-up machine on which settings do what a run measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from replay_search import Replayed, _entry, at_random, by_hand, plain_tpe, tuned

from tuner.api import load_run
from tuner.knobs import DEFAULT, Config, load_spaces
from tuner.protocol.failure import FailureClass
from tuner.session.noise import NoiseModel

pytestmark = pytest.mark.slow

LOG = Path(__file__).parent / "results" / "h200" / "rnn-jax0.11.2.events.jsonl.gz"
CONCURRENT = ("xla_gpu_command_buffer_scheduling_mode", "CONCURRENT")


@pytest.fixture(scope="module")
def replayed() -> Replayed:
    return Replayed.of(load_run(LOG).events)


def test_what_a_run_measured_for_each_setting_alone_is_what_it_does(replayed: Replayed) -> None:
    assert replayed.gain(DEFAULT) == 0.0
    assert replayed.gain(Config((CONCURRENT,))) == pytest.approx(0.164, abs=0.005)
    assert replayed.best > 0.164
    assert not replayed.near(DEFAULT)
    (refused,) = [setting for setting, kind in replayed.refused.items() if kind is FailureClass.COMPILE][:1]
    assert replayed.gain(Config((CONCURRENT,)).set(*refused)) is None
    assert (replayed.cores, replayed.budget_s) == (16, 240.0)


def test_its_knobs_are_a_search_space(replayed: Replayed, tmp_path: Path) -> None:
    path = tmp_path / "replayed.toml"
    path.write_text("version = 1\n" + "".join(map(_entry, replayed.knobs)))
    found = {k.name: (k.values, k.lane, k.acts_on, k.tier, k.requires) for k in load_spaces([str(path)]).knobs}
    assert found == {k.name: (k.values, k.lane, k.acts_on, k.tier, k.requires) for k in replayed.knobs}


def few(replayed: Replayed, *, noise: NoiseModel) -> Replayed:
    """Three knobs, of which one value alone does something."""
    names = {CONCURRENT[0], *[k.name for k in replayed.knobs if not k.requires and k.lane == "option"][:2]}
    return msgspec.structs.replace(
        replayed,
        knobs=tuple(k for k in replayed.knobs if k.name in names),
        effects={CONCURRENT: replayed.effects[CONCURRENT]},
        refused={},
        noise=noise,
    )


def test_loops_find_what_there_is_at_a_process_a_trial_and_the_tuner_too(replayed: Replayed) -> None:
    small = few(replayed, noise=NoiseModel(block_sd=0.001, block_s=0.2))
    trial_s = small.start_s + small.compile_s + 33 * small.step_s
    for draw in (at_random, plain_tpe):
        found = by_hand(small, 0, draw)
        assert found is not None
        assert found[1] == pytest.approx(found[0] * trial_s)
        assert found[0] > 1  # the defaults come first
    ours = tuned(small, 0)
    assert ours is not None
    assert ours[1] < small.budget_s


def test_a_loop_that_cannot_find_it_gives_up(replayed: Replayed) -> None:
    small = few(replayed, noise=NoiseModel(block_sd=0.001, block_s=0.2))

    def defaults(_: Replayed, __: int):
        while True:
            yield DEFAULT

    assert by_hand(small, 0, defaults) is None
