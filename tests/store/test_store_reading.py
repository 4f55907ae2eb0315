"""Runs read back by folder, log or id."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tuner.errors import StoreError, UsageError
from tuner.store.reading import read_run

ASSET = Path(__file__).parent / "assets" / "events-v1.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("nbody-aaaaaa", "nbody-bbbbbb"):
        folder = tmp_path / "store" / "runs" / name
        folder.mkdir(parents=True)
        (folder / "events.jsonl").write_bytes(ASSET.read_bytes())
    return tmp_path / "store"


def test_all_ways_lead_to_the_same_run(store: Path, tmp_path: Path) -> None:
    folder = store / "runs" / "nbody-aaaaaa"
    packed = tmp_path / "nbody.events.jsonl.gz"
    packed.write_bytes(gzip.compress(ASSET.read_bytes()))
    where = str(store)
    ways = [read_run(str(w), store=where) for w in (folder, folder / "events.jsonl", packed, "nbody-a", "nbody-aaaaaa")]
    assert len({repr(list(way.events)) for way in ways}) == 1  # NaN is not equal to itself
    assert [way.folder.path if way.folder else None for way in ways] == [folder, folder, None, folder, folder]
    assert ways[2].id == ways[0].id


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nbody", "could be any of 2 runs"),
        ("nbody-aaaaab", "unknown run 'nbody-aaaaab'; did you mean nbody-aaaaaa?"),
        ("{store}", "is no run; it holds "),
        ("{store}/runs", "is no run; it holds "),
        ("{store}/empty", "holds no run"),
        ("{store}/nowhere", "no such file or folder"),
        ("nowhere.jsonl", "no such file or folder"),
        ("{store}/torn.gz", "can't be read"),
        ("{store}/note.txt", "is no event log"),
        ("{store}/begun", "has no events yet"),
    ],
)
def test_what_is_no_run_is_said_with_what_to_do(store: Path, name: str, message: str) -> None:
    (store / "empty").mkdir()
    (store / "begun").mkdir(exist_ok=True)
    (store / "begun" / "events.jsonl").touch()
    (store / "torn.gz").write_bytes(gzip.compress(ASSET.read_bytes())[:500])
    (store / "note.txt").write_text("hello\nworld\n")
    with pytest.raises(UsageError) as caught:
        read_run(name.format(store=store), store=str(store))
    assert message in str(caught.value)
    assert caught.value.next


def test_a_log_broken_further_down_is_the_stores_trouble(store: Path) -> None:
    path = store / "runs" / "nbody-aaaaaa" / "events.jsonl"
    path.write_bytes(path.read_bytes() + b"{nonsense\n")
    for name in (str(path), "nbody-aaaaaa"):
        with pytest.raises(StoreError) as caught:
            read_run(name, store=str(store))
        assert str(path) in str(caught.value)
