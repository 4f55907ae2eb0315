"""Reading the database without SQLAlchemy where it is SQLite: a look-up shall take milliseconds, an import takes half
a second.

Looking never writes. A database that can't be read as it is (missing, of another version, damaged, wherever a query
comes upon that), or that lacks a run which lies in the store's folder, is passed over: the same queries are asked of
one in memory, filled from the event logs of the runs in question.
"""

from __future__ import annotations

import glob
import json
import os
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.store.folder import Store, run_name

if TYPE_CHECKING:
    from tuner.store.events import RunStarted

__all__ = ["SCHEMA", "Reader", "reading"]

SCHEMA = 4
"""The version of the tables that the queries are written for."""

Row = Mapping[str, Any]
Ask = Callable[[str, Row], list[dict[str, Any]]]

# How long a reader waits for a lock. Readers of a write-ahead log wait for nobody but a migration or a repair.
_WAIT_S = 10.0
_AT_ONCE = 900  # the least that every SQLite takes as values of one query
_JSON = frozenset({"identity", "context", "options", "settings", "variables", "fields"})


class Reader:
    """What asks the database. `notice`: why the database itself isn't read, "" if it is; damage may show late."""

    def __init__(self, ask: Ask, *, notice: str = "", instead: Callable[[sqlite3.Error], Reader] | None = None) -> None:
        """`ask`: of a query with ``:name`` in place of values, and these. `instead`: who is asked from then on if
        SQLite can't answer."""
        self.notice = notice
        self._ask = ask
        self._instead = instead

    def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        """What a SQL query with ``:name`` in place of values gives; JSON columns are parsed."""
        try:
            found = self._ask(query, values)
        except sqlite3.Error as error:
            if self._instead is None:
                raise
            other = self._instead(error)
            self.notice, self._ask, self._instead = other.notice, other._ask, None
            found = self._ask(query, values)
        return [{n: json.loads(v) if n in _JSON and isinstance(v, str) else v for n, v in row.items()} for row in found]


@contextmanager
def reading(
    store: Store, *, wanted: Callable[[RunStarted], bool] | None = None, workload: str = ""
) -> Iterator[Reader]:
    """A reader of the store's database. `wanted`: the runs that matter, if the logs must be read in its place;
    `workload`: the name of their file, if it is one alone.

    Raises StoreError if a server can't be reached.
    """
    if not store.url.startswith("sqlite:///"):
        with _index(store, store.url, wanted) as reader:
            yield reader
        return
    path = Path(urllib.parse.unquote(store.url.removeprefix("sqlite:///").partition("?")[0]))
    if not path.is_file() and not any(store.runs.glob("*/events.jsonl")):
        yield Reader(lambda query, values: [])
        return
    with ExitStack() as opened:

        def logs(error: Exception | str) -> Reader:
            notice = f"{path}: {error}; the runs' event logs were read instead (tune store rebuild mends it)"
            return opened.enter_context(_index(store, "sqlite://", wanted, notice=notice))

        try:
            connection = opened.enter_context(closing(_connect(path)))
            lacking = _lacking(connection, store, workload)
        except sqlite3.Error as error:
            yield logs(error)
            return
        if lacking:
            yield logs(f"it lacks run {lacking}")
            return
        yield Reader(lambda query, values: [dict(row) for row in connection.execute(query, dict(values))], instead=logs)


def _connect(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error if the file is missing, no database, or has another version's tables."""
    connection = sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?mode=ro", uri=True, timeout=_WAIT_S)
    try:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT version FROM tuner_version").fetchone()
        if found is None or found[0] != SCHEMA:
            raise sqlite3.OperationalError(f"its tables have version {found[0] if found else 'none'}, not {SCHEMA}")
    except BaseException:
        connection.close()
        raise
    return connection


def _lacking(connection: sqlite3.Connection, store: Store, workload: str) -> str:
    """A run in the store's folder that the database doesn't know, or not to its bundle; "" if there is none. It was
    locked then, or is this machine's own where several share a folder."""
    begin = f"{run_name(workload)}-" if workload else ""
    there = {path.name for path in store.runs.glob(f"{glob.escape(begin)}*")}
    names = sorted(there)
    sealed: dict[str, bool] = {}
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        query = f"SELECT run, log, sealed FROM tuner_runs WHERE run IN ({','.join('?' * len(some))})"
        for row in connection.execute(query, some):
            name = os.path.basename(os.path.dirname(row["log"] or "")) or row["run"]
            sealed[name] = row["sealed"] is not None
    for name in names:
        run = store.run(name)
        if name not in sealed and run.events.is_file() and run.events.stat().st_size:
            # One that came from elsewhere may lie under another name than its id.
            query = "SELECT sealed FROM tuner_runs WHERE substr(log, -length(:end)) = :end"
            row = connection.execute(query, {"end": f"/{name}/events.jsonl"}).fetchone()
            if row is None:
                return name
            sealed[name] = row["sealed"] is not None
        if not sealed.get(name, True) and any(run.bundle.glob("[0-9]*")):
            return name
    return ""


@contextmanager
def _index(
    store: Store, url: str, wanted: Callable[[RunStarted], bool] | None, *, notice: str = ""
) -> Iterator[Reader]:
    import sqlalchemy as sa

    from tuner.store.index import Index

    index = Index(url, runs=store.runs, wanted=wanted)

    def ask(query: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [dict(row) for row in index.select(sa.text(query).bindparams(**values))]

    try:
        index.open()
        yield Reader(ask, notice="; ".join(filter(None, [notice, *index.notices])))
    finally:
        index.close()
