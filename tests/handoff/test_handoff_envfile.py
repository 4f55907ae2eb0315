"""Env-file dialects, each read back by a program that really consumes it."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import dotenv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.handoff import parse_raw, raw, shell

SHELLS = [name for name in ("bash", "dash", "sh") if shutil.which(name)]

names = st.sampled_from(["T_", "T_a", "T_B2", "T__", "T_XLA_FLAGS"])
# The characters that shells, docker and XLA treat specially turn up far more often than chance would have it.
special = st.sampled_from("'\"\\$`# \t!*?~&|;<>()[]{}=,-+%^@:/é")
character = special | st.characters(exclude_categories=["Cs"], exclude_characters="\0")
values = st.text(character, max_size=20)
lines = values.map(lambda text: text.replace("\n", " ").replace("\r", " "))
flags = st.sampled_from(["--xla_a=", "--xla_b=true", "--xla_c=1,-2", "--xla_d=/x.y:z", "--xla_e"])
flag_texts = st.lists(flags, min_size=1, max_size=4).map(" ".join)
quick = settings(max_examples=40, deadline=None)


def sourced(shell_name: str, text: str, env: dict[str, str], folder: Path) -> dict[str, str]:
    """The variables whose name begins with T_ after a strict shell sourced `text`."""
    file = folder / "vars.sh"
    file.write_bytes(text.encode())
    command = [shutil.which(shell_name) or shell_name, "-c", "set -eu; . ./vars.sh; exec env -0"]
    done = subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, check=True)
    assert done.stderr == b""
    pairs = (entry.decode().partition("=") for entry in done.stdout.split(b"\0") if entry.startswith(b"T_"))
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("shell_name", SHELLS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(env=st.dictionaries(names, st.none() | values, min_size=1, max_size=8), comment=values)
def test_every_shell_reads_back_what_was_written(
    tmp_path: Path, shell_name: str, env: dict[str, str | None], comment: str
) -> None:
    """Any text survives; "" stays a value, None removes what was set before."""
    before = dict.fromkeys(env, "from before")
    expected = {name: value for name, value in env.items() if value is not None}
    assert expected == sourced(shell_name, shell(env, comments=[comment]), before, tmp_path)


@quick
@given(env=st.dictionaries(names, lines), comment=values)
def test_raw_reads_back_what_was_written(env: dict[str, str], comment: str) -> None:
    """Byte for byte, whatever stands in the comments."""
    assert env == parse_raw(raw(env, comments=[comment, ""]))


@quick
@given(env=st.dictionaries(names, st.just("") | flag_texts, min_size=1))
def test_dotenv_reads_flags_from_the_raw_form(env: dict[str, str]) -> None:
    assert env == dotenv.dotenv_values(stream=io.StringIO(raw(env, comments=["a comment"])))


@quick
@given(env=st.dictionaries(names, st.text(st.sampled_from('ab =,-#"`;&|!'), max_size=20), min_size=1))
def test_dotenv_reads_the_shell_form(env: dict[str, str]) -> None:
    """For values without single quotes, backslashes and dollar signs, which dotenv treats in its own way."""
    assert env == dotenv.dotenv_values(stream=io.StringIO(shell(env)))


def test_forms_as_they_look() -> None:
    """Names are sorted; the raw form has no quotes, the shell form always has."""
    env = {"XLA_FLAGS": "--a=1 --b=", "A": ""}
    assert raw(env, comments=["hello"]) == "# hello\nA=\nXLA_FLAGS=--a=1 --b=\n"
    assert shell({**env, "B": None}, trailer="end\n") == "export A=''\nunset B\nexport XLA_FLAGS='--a=1 --b='\nend\n"


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A.B", "A=B", "Ä", "A\n"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    for write in (raw, shell):
        with pytest.raises(UsageError, match="name of a variable"):
            write({name: "x"})


@pytest.mark.parametrize("value", ["a\nb", "a\r", "\0"])
def test_raw_refuses_what_it_cannot_carry(value: str) -> None:
    with pytest.raises(UsageError, match="no raw env-file can carry") as caught:
        raw({"XLA_FLAGS": value})
    assert caught.value.where == "XLA_FLAGS"


def test_shell_refuses_nul_and_carries_line_breaks() -> None:
    with pytest.raises(UsageError, match="NUL"):
        shell({"A": "\0"})
    assert shell({"A": "x\ny"}) == "export A='x\ny'\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("A=1\nB\n", "'B' has no value"),
        ("A=1\nexport B=1\n", "'export' belongs to a shell"),
        ("A=1\nB C=1\n", "can't be the name"),
        ("A=1\n=1\n", "can't be the name"),
    ],
)
def test_parse_raw_names_the_line_it_refuses(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_raw(text, where="best.env")
    assert caught.value.where == "best.env, line 2"


def test_parse_raw_reads_as_docker_does() -> None:
    """Comments and blank lines are skipped, quotes and # belong to the value, the last of two lines counts."""
    text = "\ufeff# no\n\n  A='x y'\r\nB=1 # one\nA=z=w\n"
    assert parse_raw(text) == {"A": "z=w", "B": "1 # one"}
    assert parse_raw("A='x y'\n") == {"A": "'x y'"}
