"""Values that are shares of the program's bytes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from tuner.errors import SpaceError
from tuner.knobs import UNSET, load_spaces, scaled
from tuner.knobs.scale import share

KNOB = load_spaces(["collectives"]).knob("xla_gpu_all_gather_combine_threshold_bytes")
EITHER = load_spaces(["collectives"]).knob("xla_gpu_reduce_scatter_combine_threshold_bytes")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", Fraction(0)), ("1", Fraction(1)), ("1/8", Fraction(1, 8)), ("3/2", Fraction(3, 2)), ("4", Fraction(4))],
)
def test_shares(text: str, value: Fraction) -> None:
    assert share(text) == value


@pytest.mark.parametrize("text", ["", "1/0", "-1", "0.5", "1/8 of it", "01", "unset"])
def test_what_is_no_share(text: str) -> None:
    assert share(text) is None


def test_shares_become_bytes_rounded_up() -> None:
    made = scaled(KNOB, {"all-gather": 1001})
    assert made is not None
    assert made.values == (UNSET, "0", "126", "1001")
    assert made.scale == ()
    assert scaled(made, {}) == made


def test_of_several_kinds_the_largest_counts() -> None:
    assert EITHER.scale == ("reduce-scatter", "all-reduce")
    made = scaled(EITHER, {"all-reduce": 800, "reduce-scatter": 80})
    assert made is not None
    assert made.values[-1] == "800"


def test_without_such_collectives_there_is_no_value() -> None:
    assert scaled(KNOB, {"all-reduce": 8}) is None


def test_equal_numbers_are_one_value() -> None:
    made = scaled(KNOB, {"all-gather": 1})
    assert made is not None
    assert made.values == (UNSET, "0", "1")


def test_a_knob_without_shares_stays_as_it_is() -> None:
    plain = msgspec.structs.replace(KNOB, scale=(), values=(UNSET, "5"))
    assert scaled(plain, {}) == plain


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            'values = ["unset", "1/8"]\nscale = ["all-together"]',
            '"all-together" is no kind of collective (did you mean',
        ),
        ('values = ["unset", "half"]\nscale = ["all-gather"]', '"half" is no share of the program\'s bytes'),
        ('values = ["unset", "1/8"]', '"1/8" is no int'),
    ],
)
def test_what_is_declared_wrongly_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    text = (
        'version = 1\n[[knob]]\nname = "xla_bytes"\ncarrier = "xla_flag"\ntype = "int"\n'
        f'{line}\nlane = "option"\nacts_on = "hlo"\nwhy = "w"\nsource = "s"\n'
    )
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(SpaceError) as caught:
        load_spaces([tmp_path / "my.toml"])
    assert complaint in str(caught.value)
