"""XLA_FLAGS of the place where settings are loaded, merged with the measured text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import FlagsError
from tuner.handoff import MergedFlags, merge_flags
from tuner.protocol.xla_flags import parse

ASK = """
from jaxlib import _jax
whole = _jax.CompileOptions()  # must outlive what it lends
options = whole.executable_build_options.debug_options
print(options.xla_disable_hlo_passes, options.xla_enable_hlo_passes_only, options.xla_dump_max_hlo_modules)
"""

MEASURED = "--xla_b=1 --xla_c='x y'"


@pytest.mark.parametrize("inherited", ["", "--xla_b=1 ", "--xla_c='x y' --xla_b=1", "--xla_b=2 --xla_b=1"])
def test_flags_that_change_nothing_leave_the_measured_bytes(inherited: str) -> None:
    """The text is part of the cache's key. Of two occurrences the last one counts."""
    assert merge_flags(inherited, MEASURED) == MergedFlags(text=MEASURED)


def test_flags_of_the_place_stay_in_front() -> None:
    merged = merge_flags("--xla_a='1 2'  --xla_b=9 --xla_z", MEASURED)
    assert merged.text == f"--xla_a='1 2' --xla_z {MEASURED}"
    assert merged.kept == ("--xla_a='1 2'", "--xla_z")
    assert merged.overruled == ("--xla_b=9",)
    assert merged.said == "kept --xla_a='1 2' --xla_z, overruled --xla_b=9"
    assert merged.changed


def test_an_overruled_flag_leaves_the_sealed_text() -> None:
    merged = merge_flags("--xla_b=9", MEASURED)
    assert (merged.text, merged.changed, merged.overruled) == (MEASURED, False, ("--xla_b=9",))


def test_a_named_bool_is_true() -> None:
    assert merge_flags("--xla_b", "--xla_b=true") == MergedFlags(text="--xla_b=true")


def test_lists_are_joined() -> None:
    """Whichever side has more, and whatever order the entries stand in."""
    joined = merge_flags("--xla_disable_hlo_passes=p,q", "--xla_a=1 --xla_disable_hlo_passes=r,p --xla_z=1")
    assert joined.text == "--xla_a=1 --xla_disable_hlo_passes=p,q,r --xla_z=1"
    assert joined.said == "joined xla_disable_hlo_passes"
    same = merge_flags("--xla_disable_hlo_passes=p", "--xla_disable_hlo_passes=r,p")
    assert same == MergedFlags(text="--xla_disable_hlo_passes=r,p")


def test_several_occurrences_of_an_inherited_list_all_count() -> None:
    text = "--xla_disable_hlo_passes=p --xla_disable_hlo_passes=q"
    assert merge_flags(text, "--xla_disable_hlo_passes=r").text == "--xla_disable_hlo_passes=p,q,r"
    assert merge_flags(text, "--xla_a=1").text == f"{text} --xla_a=1"


def test_without_a_measured_text_the_place_keeps_its_own() -> None:
    assert merge_flags("--xla_a=1 --xla_b=2", "").text == "--xla_a=1 --xla_b=2"
    assert merge_flags("", "") == MergedFlags(text="")


def test_a_text_that_would_be_misread_is_refused() -> None:
    with pytest.raises(FlagsError, match="foo=1") as caught:
        merge_flags("--xla_a=1 foo=1 --xla_z=1", MEASURED)
    assert caught.value.where == "inherited XLA_FLAGS"


names = st.sampled_from(["xla_a", "xla_b", "xla_c", "xla_disable_hlo_passes"])
flag_values = st.sampled_from(["1", "2", "p,q", "", "'x y'"])
texts = st.lists(st.tuples(names, flag_values), max_size=5).map(lambda fs: " ".join(f"--{n}={v}" for n, v in fs))


@given(inherited=texts, measured=texts)
def test_every_measured_flag_keeps_its_value_and_no_other_is_lost(inherited: str, measured: str) -> None:
    merged = {flag.name: flag.value for flag in parse(merge_flags(inherited, measured).text)}
    ours = {flag.name: flag.value for flag in parse(measured)}
    theirs = {flag.name: flag.value for flag in parse(inherited)}
    assert merged.keys() == ours.keys() | theirs.keys()
    for name, value in ours.items():
        if name != "xla_disable_hlo_passes":
            assert merged[name] == value
    once = merge_flags(inherited, measured).text
    assert merge_flags(inherited, once).text == once


@pytest.mark.slow
def test_xla_itself_adds_up_lists_and_takes_the_last_of_other_flags() -> None:
    """What the policy rests on."""
    flags = (
        "--xla_disable_hlo_passes=a,b --xla_disable_hlo_passes=c --xla_enable_hlo_passes_only=d "
        "--xla_enable_hlo_passes_only=e --xla_dump_max_hlo_modules=3 --xla_dump_max_hlo_modules=4"
    )
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["a,b,c", "d,e", "4"]
