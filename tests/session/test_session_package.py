"""The worker's zip: what is in it, that it starts alone, and that it is written once."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tuner
from tuner.session import package
from tuner.session.package import worker_zip


def test_it_holds_the_protocol_the_worker_and_an_entry_point(tmp_path: Path) -> None:
    root = Path(tuner.__file__).parent
    sources = {f"tuner/{p.relative_to(root)}" for part in ("protocol", "worker") for p in (root / part).rglob("*.py")}
    with zipfile.ZipFile(worker_zip(tmp_path)) as archive:
        assert set(archive.namelist()) == {"__main__.py", "tuner/__init__.py", *sources}
        assert archive.read("tuner/protocol/codec.py") == (root / "protocol" / "codec.py").read_bytes()
        assert b"tuner.worker.main" in archive.read("__main__.py")


def test_equal_sources_give_equal_bytes_under_an_equal_name(tmp_path: Path) -> None:
    first = worker_zip(tmp_path / "a")
    package._contents.cache_clear()
    second = worker_zip(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_what_is_there_is_used_again_and_what_is_damaged_replaced(tmp_path: Path) -> None:
    path = worker_zip(tmp_path)
    contents = path.read_bytes()
    before = path.stat().st_ino
    assert worker_zip(tmp_path).stat().st_ino == before
    path.write_bytes(contents[:100])
    assert worker_zip(tmp_path).read_bytes() == contents
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_without_a_folder_it_lies_where_only_this_user_can_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    package._own_temporary_folder.cache_clear()
    assert worker_zip().parent == tmp_path / f"xla-tuner-{os.getuid()}"
    (tmp_path / f"xla-tuner-{os.getuid()}").chmod(0o777)
    package._own_temporary_folder.cache_clear()
    folder = worker_zip().parent
    assert folder != tmp_path / f"xla-tuner-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0
    package._own_temporary_folder.cache_clear()


@pytest.mark.slow
def test_the_package_in_it_needs_no_third_party_package(tmp_path: Path) -> None:
    """-S: no site-packages at all, as under an interpreter that has none of our dependencies."""
    code = "import sys; sys.path[:0] = [sys.argv[1]]; import tuner.protocol.codec; print(tuner.protocol.codec.__file__)"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", code, str(worker_zip(tmp_path))], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path))
