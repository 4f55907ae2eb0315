"""Every dialect, read back by what really consumes it."""

from __future__ import annotations

import ast
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import dotenv
import pytest
from dialect_readers import (
    SHELLS,
    compose_model,
    docker_model,
    kubectl_from_env_file,
    kubectl_reads_manifest,
    kubelet_expands,
    read_by_docker,
    read_by_systemd,
    sourced_by,
    systemd_library,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.handoff import DIALECTS, Best, Content, Options
from tuner.handoff.dialects import parse_raw, raw, sourced
from tuner.measure.types import Verdict
from tuner.protocol.xla_flags import parse

pytestmark = pytest.mark.slow

names = st.sampled_from(["T_", "T_a", "T_B2", "T__", "T_XLA_FLAGS"])
# The characters that shells, docker, YAML and XLA treat specially turn up far more often than chance would have it.
special = st.sampled_from("'\"\\$`# \t\n!*?~&|;<>()[]{}=,-+%^@:/é\u0085\u2028\ufeff")
character = special | st.characters(exclude_categories=["Cs"], exclude_characters="\0")
values = st.text(character, max_size=20) | st.text(special, max_size=5)
environments = st.dictionaries(names, st.none() | values, min_size=1, max_size=6)
few = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
many = settings(few, max_examples=50)

FLAGS = "--xla_a=1,-2 --xla_b= --xla_c='x y'"


def content(env: dict[str, str | None], *, about: tuple[str, ...] = (), options: Options | None = None) -> Content:
    best = Best(
        verdict=Verdict.FASTER,
        speedup=1.5,
        settings={"xla_a": "1,-2"},
        env={n: v for n, v in env.items() if v is not None},
        unset=tuple(sorted(n for n, v in env.items() if v is None)),
        options=options,
        workload_knobs={},
    )
    return Content(about=about, env=env, name="Nbody_3f9a1c.x-2", best=best)


def written(dialect: str, env: dict[str, str | None], *, about: tuple[str, ...] = ()) -> bytes | None:
    """The file, None where the dialect refuses a value and says why and what to do instead."""
    try:
        text = DIALECTS[dialect].write(content(env, about=about), "the.file")
    except UsageError as refusal:
        said = refusal
    else:
        return text.encode(errors="surrogateescape")
    assert said.what
    assert said.where in env
    assert said.next
    return None


def set_in(env: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in env.items() if value is not None}


# -- shells ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("dialect", ["shell", "slurm"])
@few
@given(env=environments, about=values)
def test_every_shell_reads_back_what_was_written(
    tmp_path: Path, shell: str, dialect: str, env: dict[str, str | None], about: str
) -> None:
    """Any text survives; "" stays a value, None removes what was set before."""
    data = written(dialect, env, about=(about,))
    assert data is not None
    assert sourced_by(shell, data, tmp_path, dict.fromkeys(env, "from before")) == set_in(env)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_shell_carries_bytes_that_are_no_text(tmp_path: Path) -> None:
    env: dict[str, str | None] = {"T_a": "\udcff\udc80 x"}
    data = written("shell", env)
    assert data is not None
    assert b"\xff\x80 x" in data
    assert sourced_by("bash", data, tmp_path, {}) == env


@pytest.mark.skipif(shutil.which("dash") is None, reason="needs dash")
def test_slurm_hands_the_variables_on_to_tasks(tmp_path: Path) -> None:
    """sbatch --export=NONE would keep srun from doing so."""
    data = DIALECTS["slurm"].write(content({"T_a": "1"}), "x.sh") + "export T_seen=$SLURM_EXPORT_ENV\n"
    assert sourced_by("dash", data.encode(), tmp_path, {"SLURM_EXPORT_ENV": "NONE"})["T_seen"] == "ALL"
    assert "srun --container-env=T_a" in data


# -- raw lines -------------------------------------------------------------------------------------------------------


@many
@given(env=environments, about=values)
def test_raw_lines_mean_the_same_in_every_version_of_docker(env: dict[str, str | None], about: str) -> None:
    data = written("docker", env, about=(about, ""))
    assume(data is not None)
    assert data is not None
    assert docker_model(data) == parse_raw(data.decode()) == set_in(env)


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs docker's client")
@few
@given(env=environments)
def test_docker_itself_reads_back_what_was_written(tmp_path: Path, env: dict[str, str | None]) -> None:
    data = written("docker", env)
    assume(data is not None)
    assert data is not None
    assert read_by_docker(data, tmp_path) == set_in(env)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@settings(few, max_examples=5)
@given(env=environments)
def test_kubectl_reads_raw_lines_too(tmp_path: Path, env: dict[str, str | None]) -> None:
    data = written("docker", env)
    assume(data is not None and set_in(env))
    assert data is not None
    assert kubectl_from_env_file(data, tmp_path) == set_in(env)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a\nb", "holds '\\n'"),
        ("a\r", "holds '\\r'"),
        ("\0", "holds '\\x00'"),
        ("'--a'", "in quotes"),
        ('"--a --b"', "in quotes"),
        ("x" * (64 << 10), "longer than 64 KiB"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_raw_refuses_what_it_cannot_carry(value: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        raw({"XLA_FLAGS": value})
    assert why in caught.value.what
    assert caught.value.where == "XLA_FLAGS"
    assert "--format shell" in caught.value.next


def test_a_dialect_that_cannot_unset_says_so() -> None:
    for name in ("docker", "systemd", "compose", "k8s"):
        text = DIALECTS[name].write(content({"T_a": None, "T_b": ""}), "f")
        assert not DIALECTS[name].unsets
        assert "can't unset variables, and these must not be set: T_a" in text
        assert not [line for line in text.splitlines() if "T_a" in line and not line.startswith("#")]
    assert "UnsetEnvironment=T_a" in DIALECTS["systemd"].write(content({"T_a": None}), "f")


def test_parse_raw_reads_as_docker_does() -> None:
    """Comments and blank lines are skipped, quotes and # belong to the value, the last of two lines counts."""
    text = "\ufeff# no\n\n  A='x y'\r\nB=1 # one\nA=z=w\n"
    assert parse_raw(text) == {"A": "z=w", "B": "1 # one"}
    assert parse_raw("A='x y'\n") == {"A": "'x y'"}


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


# -- systemd, compose, Kubernetes ------------------------------------------------------------------------------------


@pytest.mark.skipif(systemd_library() is None, reason="needs systemd's shared library")
@many
@given(env=environments, about=values)
def test_systemd_itself_reads_back_what_was_written(tmp_path: Path, env: dict[str, str | None], about: str) -> None:
    data = written("systemd", env, about=(about, "\\"))
    assert data is not None
    assert read_by_systemd(data, tmp_path) == set_in(env)


@many
@given(env=environments, about=values)
def test_compose_reads_back_what_was_written(env: dict[str, str | None], about: str) -> None:
    data = written("compose", env, about=(about,))
    assume(data is not None)
    assert data is not None
    assert compose_model(data) == set_in(env)


@given(env=st.dictionaries(names, st.text(st.sampled_from('ab =,-#"`;&|!%$'), max_size=20), min_size=1))
@many
def test_dotenv_reads_the_compose_form(env: dict[str, str]) -> None:
    """For values without single quotes and backslashes, which dotenv treats in its own way."""
    data = written("compose", dict(env))
    assert data is not None
    assert dotenv.dotenv_values(stream=io.StringIO(data.decode()), interpolate=False) == env


@pytest.mark.parametrize("value", ["'\"", "'$HOME", "it's\\", "\r"])
def test_compose_refuses_what_it_cannot_quote(value: str) -> None:
    assert written("compose", {"T_a": value}) is None


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@settings(few, max_examples=12)
@given(env=environments, about=values)
def test_kubernetes_itself_reads_back_what_was_written(tmp_path: Path, env: dict[str, str | None], about: str) -> None:
    data = written("k8s", env, about=(about,))
    assert data is not None
    assert kubectl_reads_manifest(data, tmp_path) == set_in(env)


@many
@given(env=environments, about=values)
def test_any_yaml_reader_reads_the_config_map(env: dict[str, str | None], about: str) -> None:
    yaml = pytest.importorskip("yaml")
    data = written("k8s", {**env, "NO": "on"}, about=(about,))
    assert data is not None
    read = yaml.safe_load(data.decode())
    assert read["data"] == {**set_in(env), "NO": "on"}
    assert read["metadata"] == {"name": "tune-nbody-3f9a1c-x-2"}


def test_a_config_map_is_for_env_from() -> None:
    """Under env: a $(NAME) in a value would be replaced, so that form is not offered."""
    assert kubelet_expands("$(A) $$(A) $(B)", {"A": "1"}) == "1 $(A) $(B)"
    text = DIALECTS["k8s"].write(content({"A": "$(B) $$"}), "map.yaml")
    assert '"A": "$(B) $$"' in text
    assert "envFrom" in text


# -- documents -------------------------------------------------------------------------------------------------------


@many
@given(env=st.dictionaries(names, st.none() | values))
def test_json_keeps_set_and_unset_apart(env: dict[str, str | None]) -> None:
    data = written("json", env)
    assert data is not None
    document = json.loads(data)
    assert document["env"] == set_in(env)
    assert document["unset"] == sorted(name for name, value in env.items() if value is None)


def test_a_flags_file_holds_flags_and_nothing_else(tmp_path: Path) -> None:
    """A comment would end XLA's reading. What only the sealed cache needs is left out: a path text never hits it."""
    env: dict[str, str | None] = {"XLA_FLAGS": FLAGS, "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}
    text = DIALECTS["flags-file"].write(content(env, about=("a comment",)), "f")
    assert text == "--xla_a=1,-2\n--xla_b=\n--xla_c='x y'\n"
    file = tmp_path / "flags.txt"
    file.write_text(text)
    assert parse(str(file)) == parse(FLAGS)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"XLA_FLAGS": "--xla_a=1", "JAX_X": "1", "NCCL_Y": None}, "can't set or unset JAX_X, NCCL_Y"),
        ({"XLA_FLAGS": "/etc/hostname"}, "already names a file"),
    ],
)
def test_a_flags_file_refuses_the_rest(env: dict[str, str | None], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        DIALECTS["flags-file"].write(content(env), "f")
    assert caught.value.next


option_values = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | values


@many
@given(options=st.dictionaries(names, option_values), config=st.dictionaries(names, option_values), about=values)
def test_python_reads_back_the_options(
    options: dict[str, str | int | float | bool], config: dict[str, str | int | float | bool], about: str
) -> None:
    made = content({}, about=(about,), options=Options(compiler_options=options, jax_config=config))
    tree = ast.parse(DIALECTS["python"].write(made, "f.py"))
    found = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body}  # type: ignore[attr-defined]
    assert found == {"compiler_options": options, **({"jax_config": config} if config else {})}
    assert [type(v) for v in found["compiler_options"].values()] == [type(options[n]) for n in sorted(options)]


def test_python_refuses_what_needs_a_whole_process() -> None:
    with pytest.raises(UsageError, match="act on the whole process: xla_a") as caught:
        DIALECTS["python"].write(content({"XLA_FLAGS": FLAGS}), "f.py")
    assert "--format shell" in caught.value.next


# -- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [name for name, dialect in DIALECTS.items() if dialect.comments])
def test_each_file_says_how_to_load_it_and_what_not_to_do(dialect: str) -> None:
    made = content({"XLA_FLAGS": FLAGS}, about=("Measured on a machine",), options=Options())
    comments = [line for line in DIALECTS[dialect].write(made, "the.file").splitlines() if line.startswith("#")]
    assert comments[0] == "# Measured on a machine"
    assert any(line.startswith("# Load: ") for line in comments)
    assert any(
        "Not " in line or "Don't" in line or "stays as it is" in line or "counts more" in line for line in comments
    )


@pytest.mark.parametrize("dialect", [name for name, dialect in DIALECTS.items() if not dialect.comments])
def test_a_file_without_comments_has_a_note_for_the_screen(dialect: str) -> None:
    assert DIALECTS[dialect].note.startswith("Load: ")


@pytest.mark.parametrize("dialect", ["docker", "shell", "systemd", "compose", "k8s", "slurm"])
@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A.B", "A=B", "Ä", "A\n"])
def test_names_that_cannot_be_are_refused(dialect: str, name: str) -> None:
    with pytest.raises(UsageError, match="name of a variable"):
        DIALECTS[dialect].write(content({name: "x"}), "f")


@pytest.mark.parametrize("dialect", ["shell", "systemd", "compose", "k8s", "slurm"])
def test_nul_is_refused_everywhere(dialect: str) -> None:
    assert written(dialect, {"T_a": "\0"}) is None


def test_forms_as_they_look() -> None:
    env: dict[str, str | None] = {"XLA_FLAGS": "--a=1 --b=", "A": ""}
    assert raw(set_in(env), about=["hello"]) == "# hello\nA=\nXLA_FLAGS=--a=1 --b=\n"
    assert sourced({**env, "B": None}, trailer="end\n") == "export A=''\nunset B\nexport XLA_FLAGS='--a=1 --b='\nend\n"
    tails: dict[str, Callable[[str], bool]] = {
        "systemd": lambda text: text.endswith('A=""\nXLA_FLAGS="--a=1 --b="\n'),
        "compose": lambda text: text.endswith("A=''\nXLA_FLAGS='--a=1 --b='\n"),
        "k8s": lambda text: text.endswith('data:\n  "A": ""\n  "XLA_FLAGS": "--a=1 --b="\n'),
    }
    for name, fits in tails.items():
        assert fits(DIALECTS[name].write(content(env), "f")), name
