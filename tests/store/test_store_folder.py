from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.errors import StoreUnusable
from tuner.store import folder as module
from tuner.store.folder import RunFolder, open_store


def test_a_new_store_hides_itself_from_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    store = open_store(tmp_path / ".tuner")
    store.run("nbody-1").create()
    (store.run("nbody-1").events).write_text("")
    out = subprocess.run(["git", "status", "--porcelain", "-uall"], cwd=tmp_path, check=True, capture_output=True)
    assert out.stdout == b""
    assert f"sqlite:///{tmp_path}/.tuner/tuner.db" == store.url
    assert store.notices == ()


def test_a_folder_of_the_users_own_gets_no_gitignore(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    open_store(tmp_path)
    assert not (tmp_path / ".gitignore").exists()


def test_opening_twice_changes_nothing(tmp_path: Path) -> None:
    first = open_store(tmp_path / "s")
    (tmp_path / "s" / ".gitignore").write_text("kept")
    assert first == open_store(str(tmp_path / "s"))
    assert (tmp_path / "s" / ".gitignore").read_text() == "kept"


def test_run_folders_are_those_with_an_event_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for name in ("b", "a", "empty"):
        store.run(name).create()
    for name in ("b", "a"):
        store.run(name).events.write_text("")
    assert [f.id for f in store.run_folders()] == ["a", "b"]
    assert (tmp_path / "runs" / "a" / "logs").is_dir()


def test_a_run_folder_is_made_once(tmp_path: Path) -> None:
    folder = RunFolder(path=tmp_path / "runs" / "a")
    folder.create()
    with pytest.raises(FileExistsError):
        folder.create()
    shutil.rmtree(folder.logs)
    folder.create(exist_ok=True)
    assert folder.logs.is_dir()


def test_a_database_url_leaves_the_runs_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(f"sqlite:///{tmp_path}/other.db")
    assert tmp_path / ".tuner" == store.root
    assert f"sqlite:///{tmp_path}/other.db" == store.url
    assert open_store("postgresql://u:p@h/db").url == "postgresql+psycopg://u:p@h/db"
    assert open_store("postgresql+pg8000://h/db").url == "postgresql+pg8000://h/db"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EROFS, "--store"),
        (errno.EACCES, "--store"),
        (errno.EIO, "look at the disk"),
    ],
)
def test_a_disk_that_refuses_is_found_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreUnusable, match=os.strerror(number)) as caught:
        open_store(tmp_path / "s")
    assert str(tmp_path / "s") == caught.value.where
    assert hint in caught.value.next


def test_too_little_room_is_found_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    with pytest.raises(StoreUnusable, match="5 MB are free"):
        open_store(tmp_path / "s")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    with pytest.raises(StoreUnusable) as caught:
        open_store(tmp_path / "s")
    assert "file stands in the way" in caught.value.next


def test_on_a_network_filesystem_the_database_moves_to_a_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "network_filesystem", lambda path: "nfs4")
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    store = open_store(tmp_path / "s")
    assert store.url.startswith(f"sqlite:///{tmp_path}/local/")
    assert "nfs4" in store.notices[0]
    assert store.url in (open_store(tmp_path / "s").url,)  # the same one each time
    assert store.url != open_store(tmp_path / "t").url
    monkeypatch.chdir(tmp_path)  # with a URL the runs lie in the current folder
    with pytest.raises(StoreUnusable, match="corrupted"):
        open_store(f"sqlite:///{tmp_path}/x.db")


def test_a_local_database_folder_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "network_filesystem", lambda path: "nfs4")
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"tuner-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(StoreUnusable, match="isn't yours alone"):
        open_store(tmp_path / "s")
