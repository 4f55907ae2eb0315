"""Which bundle is meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from handoff_samples import DEFAULT, FASTER, keep_run, seal

from tuner.errors import TunerError, UsageError
from tuner.handoff.target import resolve
from tuner.measure.types import Verdict
from tuner.store import RunFolder

FITS = {"cpu": "Made Up 9000", "cores": "2"}
UNLIKE = {"cpu": "Another", "cores": "2"}


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("nbody.py").write_text("def build(): ...\n")
    return Path("nbody.py")


@pytest.fixture
def run(workload: Path) -> RunFolder:
    return keep_run(Path("store"), workload, "nbody-ab12cd")


def age(run: RunFolder, seconds: float) -> None:
    stamp = run.events.stat().st_mtime - seconds
    os.utime(run.events, (stamp, stamp))


def test_every_name_of_a_result_leads_to_its_newest_bundle(run: RunFolder) -> None:
    seal(run, DEFAULT)
    bundle = seal(run)
    for name in (
        "nbody.py",
        "nbody-ab12cd",
        "nbody-ab",
        str(run.path),
        str(run.bundle),
        str(bundle.path),
        str(bundle.path / "manifest.json"),
    ):
        target = resolve(name, store="store", seen=FITS)
        assert target.bundle is not None
        assert target.bundle.manifest == bundle.manifest, name
        assert (target.why, target.edited, target.unlike) == ("", False, {})


def test_an_unfinished_run_and_an_unknown_workload_have_none_and_say_why(run: RunFolder) -> None:
    for name in ("nbody.py", "nbody-ab12cd", str(run.path)):
        target = resolve(name, store="store")
        assert target.bundle is None
        assert target.why == "run nbody-ab12cd is unfinished: it has no verdict yet"
    Path("other.py").write_text("")
    assert resolve("other.py", store="store").why == "other.py was not tuned yet: store keeps no run of it"


def test_an_unfinished_run_does_not_hide_a_finished_one(run: RunFolder, workload: Path) -> None:
    seal(run)
    age(run, 10)
    keep_run(Path("store"), workload, "nbody-ab12cd-2")
    target = resolve("nbody.py", store="store")
    assert target.bundle is not None
    assert target.bundle.manifest.run == "nbody-ab12cd"


def test_the_newest_verdict_counts_even_if_it_is_no_gain(run: RunFolder, workload: Path) -> None:
    seal(run)
    age(run, 10)
    seal(keep_run(Path("store"), workload, "nbody-ab12cd-2"), DEFAULT)
    target = resolve("nbody.py", store="store")
    assert target.bundle is not None
    assert target.bundle.manifest.verdict is Verdict.SAME


def test_an_edited_file_is_said(run: RunFolder, workload: Path) -> None:
    seal(run)
    workload.write_text("def build(): pass\n")
    target = resolve("nbody.py", store="store")
    assert target.bundle is not None
    assert target.edited
    assert not resolve("nbody-ab12cd", store="store").edited


def test_a_result_for_the_text_as_it_is_goes_before_a_newer_one_of_another(run: RunFolder, workload: Path) -> None:
    text = workload.read_text()
    seal(run)
    age(run, 10)
    workload.write_text("def build(): pass\n")
    seal(keep_run(Path("store"), workload, "nbody-edited"))
    workload.write_text(text)
    target = resolve("nbody.py", store="store")
    assert target.bundle is not None
    assert (target.bundle.manifest.run, target.edited) == ("nbody-ab12cd", False)


def test_a_run_that_fits_this_place_goes_before_a_newer_one_that_does_not(run: RunFolder, workload: Path) -> None:
    import msgspec

    seal(run)
    age(run, 10)
    environment = msgspec.structs.replace(FASTER.environment, identity={**FASTER.environment.identity, **UNLIKE})
    seal(keep_run(Path("store"), workload, "nbody-elsewhere"), msgspec.structs.replace(FASTER, environment=environment))
    for seen, name in ((FITS, "nbody-ab12cd"), (UNLIKE, "nbody-elsewhere")):
        target = resolve("nbody.py", store="store", seen=seen)
        assert target.bundle is not None
        assert (target.bundle.manifest.run, target.unlike) == (name, {})


def test_a_place_that_is_unlike_is_named(run: RunFolder) -> None:
    bundle = seal(run)
    for name in ("nbody.py", str(bundle.path)):
        target = resolve(name, store="store", seen=UNLIKE)
        assert target.bundle is not None
        assert target.differs == "cpu is Another, not Made Up 9000"


@pytest.mark.parametrize(
    ("name", "what", "next"),
    [
        ("nbdy.py", "no such file; did you mean nbody.py?", "workload"),
        ("runs/x", "no such file", "workload"),
        ("nbody-ab12cx", "unknown run 'nbody-ab12cx'; did you mean nbody-ab12cd?", "nbody-ab12cd"),
        ("store", "holds neither a bundle nor a run", "manifest.json"),
    ],
)
def test_what_names_nothing_is_said(run: RunFolder, name: str, what: str, next: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(name, store="store")
    assert what in caught.value.what
    assert caught.value.where == name
    assert next in caught.value.next


def test_a_changed_file_of_a_bundle_is_named_and_the_cache_only_on_demand(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "entry").write_bytes(b"compiled")
    bundle = seal(run, cache=tmp_path / "cache")
    entry = bundle.path / "jax_cache" / "entry"
    entry.unlink()
    assert resolve(str(bundle.path), store="store").bundle is not None
    with pytest.raises(TunerError, match="can't be read"):
        resolve(str(bundle.path), store="store", cached=True)
    bundle.json_file.unlink()
    with pytest.raises(TunerError) as caught:
        resolve(str(bundle.path), store="store")
    assert caught.value.where == str(bundle.json_file)
