from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from tuner.errors import StoreUnusable
from tuner.store.database import damaged, engine_for, explain, passing, retry, set_aside, shown

pytestmark = pytest.mark.slow


def locked_error(tmp_path: Path) -> Exception:
    url = f"sqlite:///{tmp_path}/a.db"
    holder = sqlite3.connect(tmp_path / "a.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(sa.exc.OperationalError) as caught, engine_for(url).begin() as connection:
            connection.execute(sa.text("CREATE TABLE t (x)"))
    finally:
        holder.close()
    return caught.value


def test_a_lock_passes_also_when_it_is_wrapped(tmp_path: Path) -> None:
    error = locked_error(tmp_path)
    wrapper = RuntimeError("storage")
    wrapper.__cause__ = error
    assert passing(wrapper)
    assert not damaged(wrapper)
    assert explain(wrapper) == "database is locked"


def test_a_missing_table_does_not_pass(tmp_path: Path) -> None:
    engine = engine_for(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(sa.exc.OperationalError) as caught, engine.connect() as connection:
        connection.execute(sa.text("SELECT * FROM nowhere"))
    assert not passing(caught.value)
    assert not damaged(caught.value)


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"nonsense" * 1000)
    engine = engine_for(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(sa.exc.DatabaseError) as caught, engine.connect() as connection:
        connection.execute(sa.text("SELECT * FROM sqlite_master"))
    assert damaged(caught.value)
    assert not passing(caught.value)


def test_a_server_that_was_away_passes() -> None:
    assert passing(sa.exc.OperationalError("SELECT 1", {}, Exception("server closed the connection")))


def test_retry_waits_longer_and_longer_and_never_past_its_limit(tmp_path: Path) -> None:
    error, now, waits = locked_error(tmp_path), [0.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    def fail() -> None:
        raise error

    with pytest.raises(sa.exc.OperationalError):
        retry(fail, limit_s=5.0, sleep=sleep, clock=lambda: now[0])
    assert pytest.approx(sum(waits)) == 5.0
    assert waits[0] <= 0.02
    assert 1.0 >= max(waits) > 0.4


def test_retry_returns_once_it_works_and_raises_other_errors_at_once(tmp_path: Path) -> None:
    error, calls = locked_error(tmp_path), []

    def third_time() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise error
        return "done"

    assert retry(third_time, limit_s=5.0, sleep=lambda s: None) == "done"
    with pytest.raises(ZeroDivisionError):
        retry(lambda: 1 // 0, limit_s=5.0, sleep=lambda s: pytest.fail("waited"))


def test_damaged_files_are_kept_with_their_journals_and_numbered(tmp_path: Path) -> None:
    for round_ in (1, 2):
        (tmp_path / "a.db").write_text(f"db {round_}")
        (tmp_path / "a.db-wal").write_text(f"wal {round_}")
        assert tmp_path / f"a.db.corrupt-{round_}" == set_aside(tmp_path / "a.db")
    assert (tmp_path / "a.db.corrupt-1").read_text() == "db 1"
    assert (tmp_path / "a.db.corrupt-2-wal").read_text() == "wal 2"
    assert not (tmp_path / "a.db").exists()


def test_passwords_are_not_shown() -> None:
    assert shown("postgresql+psycopg://me:secret@host/db") == "postgresql+psycopg://me:***@host/db"


@pytest.mark.parametrize("url", ["nonsense://x", "sqlite//x", "mysql+nodriver://h/db"])
def test_a_url_that_cannot_be_used_is_an_error_with_a_way_out(url: str) -> None:
    """It is what the user wrote that is wrong; no words of a library."""
    with pytest.raises(StoreUnusable, match="names no database") as caught:
        engine_for(url)
    assert "sqlite:///FILE" in caught.value.next


def test_a_missing_driver_says_what_to_install() -> None:
    try:
        import psycopg  # noqa: F401 - only whether it is there
    except ImportError:
        with pytest.raises(StoreUnusable, match="psycopg") as caught:
            engine_for("postgresql+psycopg://me:secret@host/db")
        assert "pip install" in caught.value.next
        assert "secret" not in str(caught.value)
    else:
        assert engine_for("postgresql+psycopg://host/db").dialect.name == "postgresql"
