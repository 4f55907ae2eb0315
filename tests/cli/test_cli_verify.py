"""`tune verify`: exit codes and what is said; the checks themselves are the library's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Tune
from handoff_samples import keep_run, seal

from tuner.handoff import verify
from tuner.handoff.doctor.finding import Finding, fail, ok, warn
from tuner.store import RunFolder


@pytest.fixture
def run(folder: Path) -> RunFolder:
    Path("nbody.py").write_text("def build(): ...\n")
    made = keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd")
    seal(made)
    return made


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Finding], list[Path]]:
    """What verifying finds, and with which workloads it was asked."""
    findings: list[Finding] = [ok("flags", "still taken")]
    asked: list[Path] = []

    def made(bundle: object, workload: Path, **_: object) -> Iterator[Finding]:
        asked.append(workload)
        yield from findings

    monkeypatch.setattr(verify, "verify", made)
    return findings, asked


Found = tuple[list[Finding], list[Path]]


def test_what_holds_ends_well_and_what_does_not_with_3(tune: Tune, run: RunFolder, found: Found) -> None:
    got = tune("verify", "nbody-ab12cd")
    assert (got.code, got.err) == (0, "")
    assert got.out.startswith("ok    files  what was sealed\nok    flags  still taken\n")
    found[0].append(warn("gain", "can't be told: 1.01x", "more time"))
    assert tune("verify", "nbody-ab12cd").code == 0
    assert tune("verify", "nbody-ab12cd", "--require-gain").code == 3
    found[0].append(fail("cache", "1 of 2 compiles aren't found in it", "seal anew"))
    got = tune("verify", "nbody-ab12cd", "--json")
    document = json.loads(got.out)
    assert (got.code, document["schema"], document["ok"]) == (3, "tuner/verify/1", False)


def test_the_workload_is_the_one_named_or_the_tuned_one(tune: Tune, run: RunFolder, found: Found) -> None:
    Path("other.py").write_text("")
    bundle = str(run.bundle / "0001")
    for argv in ((bundle,), (bundle, "other.py"), ("nbody.py",)):
        assert tune("verify", *argv).code == 0
    assert [path.name for path in found[1]] == ["nbody.py", "other.py", "nbody.py"]
    Path("nbody.py").unlink()
    got = tune("verify", bundle)
    assert (got.code, got.out) == (2, "")
    assert "nbody.py isn't here" in got.err
    assert tune("verify", bundle, "nobody.py").code == 2


def test_a_file_that_was_changed_ends_it(tune: Tune, run: RunFolder, found: Found) -> None:
    path = run.bundle / "0001" / "best.env"
    path.chmod(0o644)
    path.write_text("XLA_FLAGS=--other\n")
    got = tune("verify", str(run.bundle / "0001"))
    assert (got.code, got.err) == (3, "")
    assert "best.env is not the file that was sealed" in " ".join(got.out.split())


def test_an_unfinished_run_has_nothing_to_verify(tune: Tune, run: RunFolder, folder: Path, found: Found) -> None:
    keep_run(folder / ".tuner", Path("nbody.py"), "nbody-half")
    got = tune("verify", "nbody-half")
    assert (got.code, got.out) == (4, "")
    assert "nothing to verify" in got.err
