"""Ctrl-C while a database is written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from store_samples import stored

from tuner.store.index import Index
from tuner.store.uninterrupted import uninterrupted


@pytest.fixture(autouse=True)
def ordinary() -> Iterator[None]:
    """SIGINT as at a terminal, whatever the tests were started from, and SIGHUP as under nohup."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ask(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_it_waits_until_the_block_is_left_and_what_was_set_is_back() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        ask()
        done.append(signal.getsignal(signal.SIGHUP))

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_time_it_ends_at_once_and_once() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        ask()
        ask()
        done.append(1)

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert done == []
    assert caught.value.__context__ is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_in_a_block_hands_it_on() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        with uninterrupted():
            ask()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]


def test_in_another_thread_nothing_is_touched() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_what_is_recorded_meanwhile_is_there_and_nothing_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    index = Index(f"sqlite:///{tmp_path}/tuner.db")
    index.open()
    dialect = index._engine.dialect
    close = dialect.do_close

    def closing(connection: DBAPIConnection) -> None:
        close(connection)
        ask()

    with monkeypatch.context() as interrupted:
        interrupted.setattr(dialect, "do_close", closing)
        with pytest.raises(KeyboardInterrupt):
            index.record(stored())
    assert len(index.select(sa.text("SELECT run FROM tuner_runs"))) == 1
    assert capfd.readouterr().err == ""
    index.close()
