"""Engines, and what a database's errors mean: to be tried again, damaged, or final."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from tuner.errors import StoreUnusable

__all__ = [
    "MEMORY",
    "alone",
    "damaged",
    "engine_for",
    "engine_options",
    "explain",
    "hasten",
    "passing",
    "retry",
    "set_aside",
    "shown",
    "take_lock",
]

T = TypeVar("T")

MEMORY = "sqlite://"
"""The URL of a database in memory."""

# Of PostgreSQL's advisory locks, the one under which tables are made and migrated: "tune", in ASCII.
_LOCK = 0x74756E65

# SQLite's own wait for a lock. Short: we wait ourselves, in steps that keep two waiters apart.
_WAIT_S = 0.2
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_STORES = "give a folder, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def engine_options(url: str) -> dict[str, Any]:
    """Arguments of ``create_engine`` for `url`, for us and for Optuna.

    No pool: a connection that outlives its transaction would keep writing to a file that was set aside.
    """
    options: dict[str, Any] = {"poolclass": NullPool}
    if url == MEMORY:
        return {"poolclass": StaticPool}  # its database lives and dies with the one connection
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": _WAIT_S}
    return options


def engine_for(url: str) -> sa.Engine:
    """An engine that connects on first use. Raises StoreUnusable for a URL of another kind, or a driver not
    installed."""
    try:
        engine = sa.create_engine(url, **engine_options(url))
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as error:
        raise StoreUnusable(
            f"{shown(url)} names no database that a store can be in", where="--store", next=_STORES
        ) from error
    except ModuleNotFoundError as error:
        raise StoreUnusable(
            f"the database driver {error.name} isn't installed",
            where=shown(url),
            next="pip install 'xla-tuner[postgres]'" if error.name == "psycopg" else f"pip install {error.name}",
        ) from error
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise StoreUnusable(f"{engine.dialect.name} isn't supported", where=shown(url), next=_STORES)
    hasten(engine)
    return engine


@contextmanager
def alone(engine: sa.Engine) -> Iterator[None]:
    """While this lasts nobody else makes or migrates tables in a PostgreSQL database: of two that make one table at
    once, one fails. On SQLite it does nothing: there a writer is alone anyway."""
    if engine.dialect.name != "postgresql":
        yield
        return
    with engine.begin() as connection:
        take_lock(connection)
        yield


def take_lock(connection: sa.Connection) -> None:
    """Wait for, and hold until its transaction ends, PostgreSQL's lock under which tables are made."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def hasten(engine: sa.Engine) -> None:
    """Let SQLite commit without waiting for the disk: a power failure loses what the event logs have anyway.

    With a write-ahead log that can't damage the file.
    """
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=NORMAL"))


def shown(url: str) -> str:
    """`url` without its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return "the database"


def retry(
    action: Callable[[], T],
    *,
    limit_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """What `action` returns; on a passing error it is tried again, with growing random waits, for `limit_s` seconds.

    The last error is raised as it is.
    """
    end = clock() + limit_s
    wait = 0.02
    while True:
        try:
            return action()
        except Exception as error:
            if not passing(error) or clock() >= end:
                raise
        sleep(min(random.uniform(wait / 2, wait), max(0.0, end - clock())))
        wait = min(2 * wait, 1.0)


def passing(error: BaseException) -> bool:
    """True if the same call may work in a moment: a lock, or a server that was away."""
    for link in _chain(error):
        if isinstance(link, sqlite3.Error):
            return _code(link) in _LOCKED
        if isinstance(link, sa.exc.OperationalError) and not isinstance(link.orig, sqlite3.Error):
            return True
    return False


def damaged(error: BaseException) -> bool:
    """True if SQLite says that the file is no sound database."""
    return any(isinstance(link, sqlite3.Error) and _code(link) in _DAMAGED for link in _chain(error))


def explain(error: BaseException) -> str:
    """The database's own words, on one line."""
    for link in _chain(error):
        if isinstance(link, sa.exc.DBAPIError) and link.orig is not None:
            return str(link.orig).strip().splitlines()[0]
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def set_aside(path: Path) -> Path:
    """Rename a damaged SQLite file, with its journal, to ``<name>.corrupt-<n>``; returns the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    for suffix in ("", "-wal", "-shm", "-journal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.rename(aside.with_name(aside.name + suffix))
    return aside


def _code(error: sqlite3.Error) -> int:
    """The primary result code; errors that Python's module raises itself have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it wraps, and what these were raised from (Optuna wraps SQLAlchemy, which wraps sqlite3)."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [getattr(link, "orig", None), link.__cause__, link.__context__]
