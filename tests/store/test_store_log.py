from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from store_samples import ASSETS, profiled, started, stored, trial, whole_run, write_log

from tuner.errors import StoreError, StoreUnusable
from tuner.knobs.config import DEFAULT
from tuner.machine.process import this_process
from tuner.profile.types import RankRow
from tuner.store import events as ev
from tuner.store.log import EventLog, read, read_first


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_every_kind_of_event_reads_back_as_it_was_written(path: Path) -> None:
    with EventLog(path) as log:
        written = [log.append(e) for e in whole_run()]
    # repr, as NaN differs from itself
    assert repr(written) == repr(read(path))
    assert {type(e) for e in written} == set(ev.AnyEvent.__args__)


@pytest.mark.parametrize("waits_ms", [0.25, math.inf])
def test_the_profile_of_several_ranks_reads_back(path: Path, waits_ms: float) -> None:
    """Ranks are numbers, and names in JSON are strings, also in lines that hold what isn't finite."""
    row = RankRow(rank=0, step_ms=9.0, traced_ms=9.5, busy_ms=8.0, work_ms=7.0, gaps_ms=1.0, waits_ms={1: waits_ms})
    profile = msgspec.structs.replace(profiled(), ranks=(row,))
    with EventLog(path) as log:
        written = log.append(ev.Profiled(session="gang", config=DEFAULT, profile=profile))
    assert [written] == read(path)


def test_numbers_count_from_zero_and_times_come_from_the_clock(path: Path) -> None:
    with EventLog(path, clock=iter([5.0, 6.0]).__next__) as log:
        first = log.append(started())
        second = log.append(ev.Notice(text="x"))
    assert [(first.seq, first.time), (second.seq, second.time)] == [(0, 5.0), (1, 6.0)]


def test_a_reopened_log_goes_on_where_it_ended(path: Path) -> None:
    write_log(path, [started(), ev.Notice(text="x")])
    with EventLog(path) as log:
        assert len(log.events) == 2
        assert log.append(ev.Notice(text="y")).seq == 2
        assert log.notices == ()
    assert [msgspec.json.decode(x)["kind"] for x in path.read_bytes().split(b"\n")[:-1]] == [
        "run_started",
        "notice",
        "notice",
    ]


def test_an_event_is_synchronised_before_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    with EventLog(path) as log:
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(path.read_bytes()))
        log.append(ev.Notice(text="here"))
        assert len(synced) == 1
    assert b"here" in synced[0]


@pytest.mark.parametrize("tail", [b'{"kind":"notice","v":1,"se', b"\0" * 4096, b"{"])
def test_a_last_line_cut_short_is_kept_aside_and_noticed(path: Path, tail: bytes) -> None:
    before = write_log(path, [started(), ev.Notice(text="x")])
    with path.open("ab") as file:
        file.write(tail)
    assert before == read(path)  # a reader beside a living writer sees the whole lines
    with EventLog(path) as log:
        assert before == list(log.events)
        assert len(log.notices) == 1
        assert "events.jsonl.partial-2" in log.notices[0]
        log.append(ev.Notice(text="y"))
    assert tail == path.with_name("events.jsonl.partial-2").read_bytes()
    assert len(read(path)) == 3


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"not json", "not an event"),
        (b'{"kind":"nothing_known","v":1,"seq":1,"time":0}', "not an event"),
        (b'{"kind":"notice","v":1,"seq":7,"time":0,"text":"x"}', "event 7 stands where event 1 belongs"),
        (b"", "not an event"),
    ],
)
def test_a_broken_line_is_an_error_with_its_place(path: Path, line: bytes, why: str) -> None:
    write_log(path, [started(), ev.Notice(text="x"), ev.Notice(text="y")])
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(StoreError, match=why) as caught:
        read(path)
    assert f"{path}:2" == caught.value.where
    assert caught.value.next
    with pytest.raises(StoreError, match=why):
        EventLog(path)
    # and the failed opening left no lock behind
    path.write_bytes(lines[0] + b"\n")
    EventLog(path).close()


def test_a_log_of_a_newer_version_says_upgrade(path: Path) -> None:
    path.write_bytes(b'{"kind":"from_the_future","v":999,"seq":0,"time":0}\n')
    with pytest.raises(StoreError, match="format 999") as caught:
        read(path)
    assert "pip install -U" in caught.value.next


def test_a_full_disk_is_named_and_leaves_whole_lines_only(path: Path) -> None:
    with EventLog(path) as log:
        log.append(started())
        disk = log._fd
        log._fd = os.open("/dev/full", os.O_WRONLY)
        full = log._fd
        real_truncate = os.ftruncate
        os.ftruncate = lambda fd, size: real_truncate(disk, size)  # /dev/full has no length
        try:
            with pytest.raises(StoreUnusable, match="No space left") as caught:
                log.append(ev.Notice(text="lost"))
        finally:
            os.ftruncate = real_truncate
            log._fd = disk
            os.close(full)
        assert "free space" in caught.value.next
        assert "--store" in caught.value.next
        assert log.append(ev.Notice(text="kept")).seq == 1
    assert [e.text for e in read(path) if isinstance(e, ev.Notice)] == ["kept"]


def test_an_interrupt_between_write_and_return_leaves_no_half_event(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    with EventLog(path) as log:
        log.append(started())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.append(ev.Notice(text="interrupted"))
        assert log.append(ev.Interruption(stage="search")).seq == 1
    assert [type(e).__name__ for e in read(path)] == ["RunStarted", "Interruption"]


def test_a_second_writer_is_refused_and_told_who_writes(path: Path) -> None:
    who = rf"process {os.getpid()} \(tune nbody.py\)"
    with EventLog(path, command="tune nbody.py"), pytest.raises(StoreError, match=who):
        EventLog(path)
    EventLog(path).close()


@pytest.mark.slow
def test_a_lock_that_a_killed_writer_left_is_taken_over_with_a_notice(path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tuner.store.log import EventLog\n"
        "log = EventLog(Path(sys.argv[1]), command='tune killed.py'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
    with EventLog(path) as log:
        assert len(log.notices) == 1
        assert "tune killed.py" in log.notices[0]


def test_a_hand_made_lock_of_a_dead_process_is_broken_at_once(path: Path) -> None:
    dead = msgspec.structs.replace(this_process("tune old.py"), pid=2**22 + 5)
    path.with_name("events.jsonl.lock").write_bytes(msgspec.json.encode(dead))
    with EventLog(path) as log:
        assert "tune old.py" in log.notices[0]


def test_threads_may_append_together(path: Path) -> None:
    with EventLog(path) as log:
        log.append(started())
        threads = [
            threading.Thread(target=lambda n=n: [log.append(trial(10 * n + i)) for i in range(5)]) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read(path)) == 21


def test_a_file_that_cannot_be_opened_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        EventLog(tmp_path / "file" / "events.jsonl")
    assert "--store" in caught.value.next
    with pytest.raises(StoreError):
        read(tmp_path / "missing.jsonl")


def test_the_first_event_is_read_alone(path: Path) -> None:
    assert read_first(path) is None
    path.write_bytes(b"")
    assert read_first(path) is None
    written = write_log(path, [started(), ev.Notice(text="x")])
    path.write_bytes(path.read_bytes() + b"broken\n")
    assert written[0] == read_first(path)


def test_the_stored_log_of_version_1_reads_as_it_was_written() -> None:
    assert repr(stored()) == repr(read(ASSETS / "events-v1.jsonl"))
