"""The XLA_FLAGS grammar: what is read, what is written, and what is complained about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.protocol.xla_flags import Flag, file_of, merge, parse, problems, render

quick = settings(max_examples=25)

NO_BLANKS = str.maketrans("", "", " \t\r\n")
NAMES = st.from_regex(r"xla_[a-z0-9_]{1,12}", fullmatch=True)
VALUES = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
FLAGS = st.builds(Flag, NAMES, VALUES)
TAME = st.builds(Flag, NAMES, st.none() | st.from_regex(r"[A-Za-z0-9_.:/]{0,9}", fullmatch=True))


def test_flags_are_separated_by_blanks_and_newlines() -> None:
    assert parse("--a=1 \t--b\r\n--c=") == (Flag("a", "1"), Flag("b", None), Flag("c", ""))


def test_raw_text_of_each_flag_is_kept() -> None:
    assert [f.raw for f in parse("--a='x y'  --b=1")] == ["--a='x y'", "--b=1"]


def test_quotes_right_after_the_equals_sign_are_taken_off() -> None:
    assert parse("""--a='x y' --b="p \\"q\\" \\r" --c=''""") == (Flag("a", "x y"), Flag("b", 'p "q" r'), Flag("c", ""))


def test_backslash_is_literal_in_single_quotes() -> None:
    assert parse(r"--a='x\y'") == (Flag("a", r"x\y"),)


def test_quotes_elsewhere_belong_to_the_value() -> None:
    assert parse("""--a=x"y" --b="z""") == (Flag("a", 'x"y"'), Flag("b", "z"))


def test_a_closed_quote_ends_the_flag_without_a_blank() -> None:
    assert parse("--a='1'--b=2") == (Flag("a", "1"), Flag("b", "2"))


def test_a_bare_word_ends_the_reading() -> None:
    assert parse("--a=1 foo=1 --b=2") == (Flag("a", "1"),)


def test_empty_and_quoted_empty_are_the_same_value_and_differ_from_none() -> None:
    assert parse("--a=") == parse("--a=''") == (Flag("a", ""),)
    assert parse("--a=") != parse("--a")


def test_file_form_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("--a=1\n--b='x y'\n")
    assert file_of(str(file)) == str(file)
    assert parse(str(file)) == (Flag("a", "1"), Flag("b", "x y"))
    assert problems(str(file)) == ()


def test_a_text_of_flags_names_no_file() -> None:
    assert file_of("  --a=1") is None
    assert file_of("") is None


def test_reading_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        parse(str(tmp_path / "none"))


@quick
@pytest.mark.slow
@given(st.lists(FLAGS))
def test_what_is_rendered_reads_back(flags: list[Flag]) -> None:
    assert list(parse(render(flags))) == flags


@quick
@pytest.mark.slow
@given(st.lists(TAME))
def test_what_is_rendered_has_no_problem(flags: list[Flag]) -> None:
    assert problems(render(flags)) == ()


@quick
@pytest.mark.slow
@given(st.text("-=x'\"\\ \n,#–", max_size=20))
def test_rendering_is_canonical(text: str) -> None:
    """Whatever XLA reads from a text, the canonical text says the same, and is its own canonical text."""
    if file_of(text) is None:
        flags = parse(text)
        assert parse(render(flags)) == flags
        assert render(parse(render(flags))) == render(flags)


def test_rendering_quotes_only_where_needed() -> None:
    flags = [Flag("a", "x=1,y"), Flag("b", "p q"), Flag("c", "it's \\ a"), Flag("d", ""), Flag("e", None)]
    assert render(flags) == """--a=x=1,y --b='p q' --c="it's \\\\ a" --d= --e"""


def test_quotes_behind_an_odd_name_are_not_taken_off() -> None:
    assert parse("--a.b='x'") == (Flag("a.b", "'x'"),)
    assert render([Flag("a.b", "'x'")]) == "--a.b='x'"
    with pytest.raises(ValueError, match="no text says"):
        render([Flag("a.b", "x y")])


# -- merge


def test_merge_keeps_untouched_flags_byte_for_byte() -> None:
    assert merge("--b=True   --a='1'\n--c", {"z": "2"}) == "--b=True --a='1' --c --z=2"


def test_merge_without_a_change_returns_the_very_text() -> None:
    text = "  --a=1\t--b='x'  "
    assert merge(text, {}) == text
    assert merge(text, {"a": "1", "b": "x", "absent": None}) == text


def test_merge_changes_the_occurrence_that_counts_and_drops_the_others() -> None:
    assert merge("--a=1 --b=2 --a=3 --c=4", {"a": "9"}) == "--b=2 --a=9 --c=4"


def test_merge_removes_every_occurrence() -> None:
    assert merge("--a=1 --b=2 --a=3", {"a": None}) == "--b=2"


def test_merge_appends_new_flags_by_name() -> None:
    assert merge("", {"b": "1", "a": ""}) == "--a= --b=1"


def test_merge_into_an_open_quote_does_not_lose_the_new_flag() -> None:
    assert parse(merge("--a='x y", {"b": "1"})) == (Flag("a", "x y"), Flag("b", "1"))


def test_merge_leaves_out_what_was_never_read() -> None:
    assert merge("--a=1 foo --b=2", {"c": "3"}) == "--a=1 --c=3"


def test_merge_into_a_file_form_takes_the_files_flags(tmp_path: Path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("--a=1\n--b='x y'\n")
    assert merge(str(file), {"a": None, "c": "2"}) == "--b='x y' --c=2"
    assert merge(str(file), {"a": "1"}) == str(file)


@quick
@pytest.mark.slow
@given(st.lists(FLAGS), st.dictionaries(NAMES, st.none() | st.text("ab '\"\\", max_size=4), max_size=4))
def test_merge_means_last_wins(flags: list[Flag], changes: dict[str, str | None]) -> None:
    def effective(text: str) -> dict[str, str | None]:
        return {flag.name: flag.value for flag in parse(text)}

    base = render(flags)
    unset = {name for name, value in changes.items() if value is None}
    expected = {n: v for n, v in effective(base).items() if n not in unset}
    expected |= {n: v for n, v in changes.items() if v is not None}
    assert effective(merge(base, changes)) == expected


@quick
@pytest.mark.slow
@given(st.lists(FLAGS), st.dictionaries(NAMES, st.text("ab '\"", max_size=4), max_size=4))
def test_merge_twice_is_merge_once(flags: list[Flag], changes: dict[str, str]) -> None:
    once = merge(render(flags), changes)
    assert merge(once, changes) == once


# -- problems


@quick
@pytest.mark.slow
@given(st.text() | st.text("-=x_'\"\\ \n,#\u2013\u201c\u00a0", max_size=20))
def test_any_text_can_be_checked(text: str) -> None:
    """Nothing raises, and where nothing is complained about, nothing is lost."""
    if not problems(text) and file_of(text) is None:
        read = "".join(flag.raw for flag in parse(text))
        assert read.translate(NO_BLANKS) == text.translate(NO_BLANKS)


def test_a_bare_word_is_named_with_the_flags_it_would_lose() -> None:
    (problem,) = problems("--xla_a=1 foo=1 --xla_force_host_platform_device_count=4")
    assert (problem.kind, problem.token, problem.fatal) == ("stops", "foo=1", False)
    assert problem.lost == ("xla_force_host_platform_device_count",)


@pytest.mark.parametrize(
    ("text", "kind", "token", "meant"),
    [
        ("--xla_a=1 \u2013xla_b=2", "dash", "\u2013xla_b=2", "--xla_b=2"),  # en dash
        ("\u2014xla_a=1", "dash", "\u2014xla_a=1", "--xla_a=1"),  # em dash, at the start: a file name
        ("--xla\u2212a=1", "dash", "--xla\u2212a=1", "--xla_a=1"),  # minus sign, inside the name
        ("-xla_a=1", "dash", "-xla_a=1", "--xla_a=1"),
        ("--xla_a true --xla_b", "equals", "true", "--xla_a=true"),
        ("--xla_a = true", "equals", "=", "--xla_a=true"),
        ("--xla_a= true", "equals", "true", "--xla_a=true"),
        ("--xla_a-true", "equals", "--xla_a-true", "--xla_a=true"),
        ("--xla_a=1 xla_b=2", "stops", "xla_b=2", "--xla_b=2"),
        ("xla_b=2", "file", "xla_b=2", "--xla_b=2"),
    ],
)
def test_a_typing_error_is_named_with_what_was_meant(text: str, kind: str, token: str, meant: str) -> None:
    problem = problems(text)[0]
    assert (problem.kind, problem.token) == (kind, token)
    assert f"write {meant}" in problem.message


@pytest.mark.parametrize(
    "quoted", ['"--xla_a=1 --xla_b=2"', "'--xla_a=1 --xla_b=2'", "\u201c--xla_a=1 --xla_b=2\u201d"]
)
def test_quotes_that_an_env_file_kept_are_fatal(quoted: str) -> None:
    (problem,) = problems(quoted)
    assert (problem.kind, problem.fatal, problem.lost) == ("quotes", True, ("xla_a", "xla_b"))


@pytest.mark.parametrize(
    ("text", "kind", "lost"),
    [
        ("--a=1 # --b=2", "stops", ("b",)),
        ("--a=1 \\\n --b=2", "stops", ("b",)),
        ("--a=1,--b=2", "comma", ("b",)),
        ("--a=1, --b=2", "comma", ()),
        ("--a='x --b=2", "quotes", ("b",)),
        ("--a='x'y --b=2", "stops", ("b",)),
        ('--a=x" --b=2', "quotes", ()),
        ("--a=1\u00a0--b=2", "blank", ("b",)),
    ],
)
def test_silent_losses_are_named(text: str, kind: str, lost: tuple[str, ...]) -> None:
    (problem,) = problems(text)
    assert (problem.kind, problem.lost, problem.fatal) == (kind, lost, False)


def test_blanks_alone_are_a_file_name() -> None:
    (problem,) = problems("  ")
    assert (problem.kind, problem.fatal) == ("blank", True)


def test_a_file_that_is_missing_is_fatal_and_a_folder_is_not(tmp_path: Path) -> None:
    (missing,) = problems(str(tmp_path / "none"))
    (folder,) = problems(str(tmp_path))
    assert (missing.kind, missing.fatal) == ("file", True)
    assert (folder.kind, folder.fatal) == ("file", False)
    assert parse(str(tmp_path)) == ()


def test_a_files_own_flags_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("--xla_a=1\nxla_b=2\n--xla_c=3\n")
    (problem,) = problems(str(file))
    assert (problem.token, problem.lost) == ("xla_b=2", ("xla_b", "xla_c"))


def test_list_values_with_signs_and_commas_are_fine() -> None:
    assert problems("--xla_gpu_enable_command_buffer=+FUSION,-CUBLAS --xla_gpu_enable_cublaslt") == ()


@pytest.mark.jax
def test_xla_reads_what_we_read() -> None:
    """XLA's own complaint about unknown flags lists the flags as it read them."""
    text = """ --zz_a='x  y'--zz_b="p\\"q\\r" \t--zz_c=1,2\n--zz_d --zz_e=u"v --zz_f='' --zz-g=1 -zz_h word --zz_i=2"""
    child = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": text, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = [line for line in child.stderr.splitlines() if "Unknown flags" in line]
    dashes = ["-" if f.raw.startswith("-zz") else "--" for f in parse(text)]
    ours = [d + f.name + ("" if f.value is None else f"={f.value}") for d, f in zip(dashes, parse(text), strict=True)]
    assert line.partition("XLA_FLAGS: ")[2] == " ".join(ours)
