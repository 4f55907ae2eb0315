"""How many steps a block has."""

from __future__ import annotations

import pytest

from tuner.measure import WARM_UP_STEPS, BlockForm, Objective, block_form, even_forms, shorter, steps_to_tell

MEAN, P50, P99 = Objective(), Objective(name="p50"), Objective(name="p99")


def test_a_far_quantile_takes_hundreds_of_steps_and_a_median_few() -> None:
    assert steps_to_tell(0.99) == steps_to_tell(0.01) == 300
    assert steps_to_tell(0.5) == 6


def test_mean_times_fill_the_target_after_one_discarded_step() -> None:
    for objective in (MEAN, Objective(name="throughput")):
        assert block_form(objective, 0.01, target_s=0.2, most_s=1.0) == BlockForm(steps=20)
        assert block_form(objective, 3.0, target_s=0.2, most_s=1.0) == BlockForm(steps=1)


@pytest.mark.parametrize(
    ("objective", "step_s", "steps"),
    [(P99, 1e-4, 2000), (P99, 1e-3, 300), (P50, 1e-3, 200), (P50, 1e-2, 50)],
)
def test_quantiles_get_the_steps_that_tell_them_after_fifty(objective: Objective, step_s: float, steps: int) -> None:
    form = block_form(objective, step_s, target_s=0.2, most_s=10.0)
    assert form == BlockForm(steps=steps, warm_up=WARM_UP_STEPS, quantile=objective.quantile)


@pytest.mark.parametrize("step_s", [0.004, 0.01, 0.1, 0.4, 1.0, 30.0])
def test_no_block_takes_longer_than_it_may_unless_one_step_does(step_s: float) -> None:
    form = block_form(P99, step_s, target_s=0.2, most_s=1.5)
    assert form.quantile == 0.99
    assert 1 <= form.warm_up <= max(1, form.all_steps // 3)
    assert form.all_steps * step_s <= max(1.5 + step_s / 2, 2 * step_s)
    assert form.steps < 300 or step_s < 0.005
    assert form.all_steps * step_s >= min(1.5 - step_s, step_s)  # and it uses what it may


def test_blocks_of_arms_of_different_speed_last_equally_long() -> None:
    form = BlockForm(steps=4)
    forms = even_forms(form, {"slow": 0.03, "fast": 0.005, "like": 0.0299})
    assert {key: one.steps for key, one in forms.items()} == {"slow": 4, "fast": 24, "like": 4}
    assert even_forms(form, {}) == {}
    told = BlockForm(steps=300, warm_up=50, quantile=0.99)
    assert even_forms(told, {"slow": 0.03, "fast": 0.005}) == {"slow": told, "fast": told}


@pytest.mark.parametrize(
    ("steps", "noise", "wanted", "fewer"),
    [
        (200, 0.002, 0.002, 200),
        (200, 0.001, 0.002, 50),
        (200, 1e-5, 0.002, 50),
        (200, 0.0015, 0.002, 113),
        (2, 1e-3, 2e-3, 1),
    ],
)
def test_a_quiet_machine_needs_shorter_blocks(steps: int, noise: float, wanted: float, fewer: int) -> None:
    assert shorter(steps, noise, wanted) == fewer


def test_a_noisy_machine_keeps_its_blocks() -> None:
    assert shorter(7, 0.02, 0.002) == 7
    assert shorter(1, 1e-6, 0.002) == 1
    with pytest.raises(ValueError, match="must be positive"):
        shorter(7, 0.02, 0.0)
