"""Reading the database without SQLAlchemy where it is SQLite: a look-up shall take milliseconds, an import takes half
a second.

Looking never writes. A database that can't be read as it is (missing, damaged, of another version) is passed over: the
same queries are asked of one in memory, filled from the event logs of the runs in question.
"""

from __future__ import annotations

import json
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tuner.store.folder import Store

if TYPE_CHECKING:
    from tuner.store.events import RunStarted

__all__ = ["SCHEMA", "Reader", "reading"]

SCHEMA = 4
"""The version of the tables that the queries are written for."""

Row = Mapping[str, Any]

# How long a reader waits for a lock. Readers of a write-ahead log wait for nobody but a migration or a repair.
_WAIT_S = 10.0
_JSON = frozenset({"identity", "context", "options", "settings", "variables", "fields"})


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """`rows(query, **values)`: what a SQL query with ``:name`` in place of values gives; JSON columns are parsed.
    `notice`: why the database itself isn't read, "" if it is."""

    ask: Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]
    notice: str = ""

    def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        return [
            {n: json.loads(v) if n in _JSON and isinstance(v, str) else v for n, v in row.items()}
            for row in self.ask(query, values)
        ]


@contextmanager
def reading(store: Store, *, wanted: Callable[[RunStarted], bool] | None = None) -> Iterator[Reader]:
    """A reader of the store's database. `wanted`: the runs that matter, if the logs must be read in its place.

    Raises StoreError if a server can't be reached.
    """
    if not store.url.startswith("sqlite:///"):
        with _index(store, store.url, wanted) as reader:
            yield reader
        return
    path = Path(urllib.parse.unquote(store.url.removeprefix("sqlite:///").partition("?")[0]))
    if not path.is_file() and not any(store.runs.glob("*/events.jsonl")):
        yield Reader(ask=lambda query, values: [])
        return
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        with _index(
            store, "sqlite://", wanted, notice=f"{path}: {error}; the runs' event logs were read instead"
        ) as it:
            yield it
        return
    with closing(connection):
        yield Reader(ask=lambda query, values: [dict(row) for row in connection.execute(query, dict(values))])


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
        yield Reader(ask=ask, notice="; ".join(filter(None, [notice, *index.notices])))
    finally:
        index.close()
