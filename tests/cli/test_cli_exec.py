"""`tune exec`: the command gets the settings, keeps its status and signals, and tune's own failures look different."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from command_line import Tune
from handoff_samples import DEFAULT, FASTER, FLAGS, indexed, keep_run, seal
from processor_time import least_seconds, quick_environ

from tuner.handoff.contents import Control
from tuner.machine import Environment
from tuner.machine.here import visible
from tuner.measure import BlockForm
from tuner.store import RunFolder
from tuner.store.index import Index

ROOT = Path(__file__).parents[2]
HEAVY = ("jax", "jaxlib", "numpy", "optuna", "pandas", "scipy", "sqlalchemy")

# What the machine that runs the tests shows of itself, so that samples fit it.
HERE = Environment(identity={"platform": "cpu", "device_kind": "cpu", **visible()}, context={})
FITS = msgspec.structs.replace(FASTER, environment=HERE)
ELSEWHERE = msgspec.structs.replace(
    FASTER, environment=Environment(identity={"platform": "cpu", "cpu": "Made Up 9000"}, context={})
)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    for name in [name for name in os.environ if name.startswith(("XLA_", "JAX_"))]:
        monkeypatch.delenv(name)
    Path("nbody.py").write_text("def build(): ...\n")
    return keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd")


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """Instead of becoming a command, exec notes here what it would have become, and exits 0."""
    seen: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def become(command: tuple[str, ...], environ: dict[str, str]) -> int:
        seen.append((command, environ))
        return 0

    monkeypatch.setattr("tuner.cli.exec._become", become)
    return seen


Seen = list[tuple[tuple[str, ...], dict[str, str]]]


def ours(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(("XLA_", "JAX_"))}


@pytest.mark.parametrize("target", ["nbody.py", "nbody-ab", ".tuner/runs/nbody-ab12cd/bundle/0001"])
def test_the_command_gets_the_settings(
    tune: Tune, run: RunFolder, became: Seen, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    seal(run, FITS)
    indexed(run)
    got = tune("exec", target, "--", "train", "--lr", "1", "--", "x")
    assert (got.code, got.out) == (0, "")
    ((command, environ),) = became
    assert command == ("train", "--lr", "1", "--", "x")
    assert ours(environ) == {"XLA_FLAGS": FLAGS}
    assert {n: v for n, v in environ.items() if n not in ("XLA_FLAGS",)}.items() <= os.environ.items()
    assert got.err == (
        "tune: run nbody-ab12cd: 2.00x (1.90–2.10) with xla_cpu_experimental_ynn_fusion_type= xla_cpu_max_isa=AVX2\n"
    )
    assert tune("exec", target, "--quiet", "--", "train").err == ""


def test_a_database_that_is_damaged_costs_no_settings_and_is_told(tune: Tune, run: RunFolder, became: Seen) -> None:
    seal(run, FITS)
    Path(".tuner/tuner.db").write_bytes(b"nonsense" * 1000)
    got = tune("exec", "nbody.py", "--", "train")
    assert ours(became[0][1]) == {"XLA_FLAGS": FLAGS}
    trouble, told = got.err.splitlines()
    assert "file is not a database; the runs' event logs were read instead" in trouble
    assert told.startswith("tune: run nbody-ab12cd: 2.00x")
    assert tune("exec", "nbody.py", "--quiet", "--", "train").err == ""


def test_what_the_workload_was_built_with_is_told(tune: Tune, run: RunFolder, became: Seen) -> None:
    control = Control(knobs={"bodies": 768}, margin=0.005, form=BlockForm(steps=4), numerics_steps=2, tolerances=())
    seal(run, msgspec.structs.replace(FITS, control=control))
    assert "(tuned with bodies=768)" in tune("exec", "nbody.py", "--", "train").err


def test_the_sealed_cache_is_loaded_where_it_lies(tune: Tune, run: RunFolder, became: Seen, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "entry").write_bytes(b"x")
    bundle = seal(run, FITS, cache=tmp_path / "c")
    tune("exec", "nbody.py", "--", "train")
    assert ours(became[0][1])["JAX_COMPILATION_CACHE_DIR"] == str(bundle.cache)


def test_inherited_flags_are_merged_and_shown(
    tune: Tune, run: RunFolder, became: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "entry").write_bytes(b"x")
    seal(run, FITS, cache=tmp_path / "c")
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1 --xla_cpu_max_isa=SSE4_2")
    got = tune("exec", "nbody.py", "--", "train")
    assert became[0][1]["XLA_FLAGS"] == f"--xla_mine=1 {FLAGS}"
    assert "XLA_FLAGS merged: kept --xla_mine=1, overruled --xla_cpu_max_isa=SSE4_2" in got.err
    assert "the sealed cache won't be used" in got.err
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    got = tune("exec", "nbody.py", "--", "train")
    assert became[1][1]["XLA_FLAGS"] == FLAGS
    assert "merged" not in got.err


def test_without_a_result_the_command_runs_as_it_would(
    tune: Tune, run: RunFolder, became: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1")
    indexed(run)
    got = tune("exec", "nbody.py", "--", "train")
    assert got.code == 0
    assert became[0][1] == dict(os.environ)
    assert got.err == "tune: default: run nbody-ab12cd is unfinished: it has no verdict yet\n"
    Path("other.py").write_text("")
    assert "default: other.py was not tuned yet" in tune("exec", "other.py", "--", "train").err


@pytest.mark.parametrize("sealed", [None, DEFAULT, ELSEWHERE])
def test_a_required_gain_that_is_not_there_is_exit_4(
    tune: Tune, run: RunFolder, became: Seen, sealed: msgspec.Struct | None
) -> None:
    if sealed is not None:
        environment = HERE if sealed is DEFAULT else ELSEWHERE.environment
        seal(run, msgspec.structs.replace(sealed, environment=environment))  # type: ignore[type-var]
    got = tune("exec", "nbody.py", "--require-gain", "--", "train")
    assert (got.code, became) == (4, [])
    assert "default" in got.err
    assert tune("exec", "nbody.py", "--", "train").code == 0


def test_a_required_gain_that_is_there_is_used(tune: Tune, run: RunFolder, became: Seen) -> None:
    seal(run, FITS)
    assert tune("exec", "nbody.py", "--require-gain", "--", "train").code == 0
    assert ours(became[0][1]) == {"XLA_FLAGS": FLAGS}


def test_another_place_is_named_and_no_answer(tune: Tune, run: RunFolder, became: Seen) -> None:
    """A flag that was fine there may end the process here."""
    seal(run, ELSEWHERE)
    got = tune("exec", "nbody.py", "--", "train")
    assert ours(became[0][1]) == {}
    assert f"default: run nbody-ab12cd is of another place: cpu is {visible()['cpu']}, not Made Up 9000" in got.err
    got = tune("exec", "nbody.py", "--anyway", "--", "train")
    assert ours(became[1][1]) == {"XLA_FLAGS": FLAGS}
    assert "not Made Up 9000" in got.err


def test_an_upgraded_jax_is_another_place(tune: Tune, run: RunFolder, became: Seen, tmp_path: Path) -> None:
    program = tmp_path / "venv" / "bin" / "python"
    (tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "jax-0.99.0.dist-info").mkdir(parents=True)
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    seal(run, msgspec.structs.replace(FITS, environment=Environment(identity={"jax": "0.10.2"}, context={})))
    got = tune("exec", "nbody.py", "--", str(program), "train.py")
    assert "jax is 0.99.0, not 0.10.2" in got.err
    assert ours(became[0][1]) == {}


def test_a_changed_workload_is_said_or_costs_the_settings(tune: Tune, run: RunFolder, became: Seen) -> None:
    seal(run, FITS)
    indexed(run)
    Path("nbody.py").write_text("def build(): pass\n")
    got = tune("exec", "nbody.py", "--", "train")
    assert "run nbody-ab12cd (nbody.py has changed since): 2.00x" in got.err
    assert ours(became[0][1]) == {"XLA_FLAGS": FLAGS}
    got = tune("exec", "nbody.py", "--default-if-changed", "--", "train")
    assert got.err == "tune: default: nbody.py has changed since run nbody-ab12cd\n"
    assert ours(became[1][1]) == {}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nbody-ab12cx", "--", "train"], "did you mean nbody-ab12cd?"),
        (["nbdy.py", "--", "train"], "no such file"),
        (["nbody.py", "train"], "there is no command"),
        (["nbody.py", "--"], "there is no command after --"),
        (["--", "train"], "WORKLOAD|RUN|BUNDLE is missing"),
        (["--requiregain", "nbody.py", "--", "train"], "did you mean --require-gain?"),
    ],
)
def test_tunes_own_failures_are_125(tune: Tune, run: RunFolder, became: Seen, argv: list[str], said: str) -> None:
    got = tune("exec", *argv)
    assert (got.code, got.out, became) == (125, "", [])
    assert said in got.err


def test_flags_that_would_be_misread_are_125(
    tune: Tune, run: RunFolder, became: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(run, FITS)
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 foo=1")
    got = tune("exec", "nbody.py", "--", "train")
    assert (got.code, became) == (125, [])
    assert "where: inherited XLA_FLAGS" in got.err


def test_help_is_no_failure(tune: Tune) -> None:
    got = tune("exec", "--help")
    assert got.code == 0
    assert "-- COMMAND..." in got.out


# -- real processes --------------------------------------------------------------------------------------------------


def exec_(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {n: v for n, v in os.environ.items() if not n.startswith(("TUNER_", "XLA_", "JAX_", "COV_", "PYTHON"))}
    command = [sys.executable, "-c", "import sys; from tuner.cli import main; sys.exit(main())", "exec", *argv]
    return subprocess.run(
        command, cwd=folder, env={**environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_status_and_signals_are_the_commands_own(run: RunFolder, folder: Path) -> None:
    seal(run, FITS)
    done = exec_(folder, "nbody.py", "--", "sh", "-c", 'printf "%s" "$XLA_FLAGS"; exit 42')
    assert (done.returncode, done.stdout) == (42, FLAGS)
    assert exec_(folder, "nbody.py", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    # A program that Python starts would otherwise go on writing into a closed pipe.
    assert exec_(folder, "nbody.py", "--", "sh", "-c", "kill -PIPE $$").returncode == -signal.SIGPIPE


@pytest.mark.slow
def test_a_command_that_cannot_be_started_is_126_or_127(run: RunFolder, folder: Path) -> None:
    (folder / "plain").write_text("no program")
    missing = exec_(folder, "nbody.py", "--", "no-such-program")
    assert missing.returncode == 127
    assert "there is no such program" in missing.stderr
    forbidden = exec_(folder, "nbody.py", "--", "./plain")
    assert forbidden.returncode == 126
    assert "Permission denied" in forbidden.stderr


@pytest.mark.slow
def test_exec_takes_less_than_300_ms_and_imports_nothing_heavy(run: RunFolder, folder: Path) -> None:
    seal(run, FITS)
    index = Index(f"sqlite:///{folder}/.tuner/tuner.db", runs=folder / ".tuner/runs")
    index.open()  # a run leaves it so
    index.close()
    assert least_seconds("exec", "--quiet", "nbody.py", "--", "true", cwd=folder) < 0.3
    code = (
        "import sys, json, os; import tuner.cli.exec as e\n"
        "e._become = lambda c, v: print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules}))) or 0\n"
        "from tuner.cli import main; sys.exit(main(['exec', '--quiet', 'nbody.py', '--', 'true']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=quick_environ(), capture_output=True, text=True, check=True
    )
    assert not set(json.loads(done.stdout)) & set(HEAVY)
