"""The SQL index over all runs: what is known of a program in an environment, answered in milliseconds."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tuner.errors import StoreError, StoreUnusable
from tuner.knobs.config import Config
from tuner.measure.types import UNSETTLED, Estimate, Verdict
from tuner.store import tables
from tuner.store.database import damaged, engine_for, explain, retry, set_aside, shown, take_lock
from tuner.store.events import AnyEvent, RunStarted
from tuner.store.folder import RunFolder
from tuner.store.lines import uid_of
from tuner.store.log import read, read_first
from tuner.store.migrations import MIGRATIONS
from tuner.store.rows import Row, changes_of
from tuner.store.uninterrupted import uninterrupted

__all__ = ["Index", "Known"]

T = TypeVar("T")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A config with a proven gain for a program in an environment: the newest verdict that settles something is
    `faster`. `time`: seconds since the epoch."""

    config: Config
    estimate: Estimate
    run: str
    time: float


class Index:
    """The index at `url` (SQLite or PostgreSQL; ``sqlite://`` is one in memory). It holds nothing that the event logs
    don't: a trouble with it costs no measurement.

    `runs`: the folder of run folders, from which a new, damaged or incomplete database is filled. `wanted`: of which
    runs; None means all. `notices` collects what the user should know, until `record` returns it. `renewed`: a damaged
    database was made anew, so that the Optuna studies in it are gone too. One caller at a time.
    """

    def __init__(
        self, url: str, *, runs: Path | None = None, wanted: Callable[[RunStarted], bool] | None = None
    ) -> None:
        """Raises StoreError for a URL that can't be used at all; nothing is touched yet."""
        self._url = url
        self._engine = engine_for(url)
        self._runs = runs
        self._wanted = wanted
        self.renewed = False
        self._ready = False
        self._done: dict[str, int] = {}
        self.notices: list[str] = []

    @uninterrupted()
    def open(self, *, limit_s: float = 10.0) -> None:
        """Make the tables, or check them, and take up runs of `runs` that are missing or weren't finished.

        A damaged SQLite file is kept aside and made anew; tables of an older version are migrated. Raises
        StoreUnusable if the database stays locked for `limit_s` seconds, can't be written, or has a newer version's
        tables.
        """
        if self._ready:
            return
        try:
            self._sound(lambda: retry(self._prepare, limit_s=limit_s))
            self._ready = True
            self._sound(lambda: retry(self._catch_up, limit_s=limit_s))
        except sa.exc.SQLAlchemyError as error:
            self._ready = False
            raise self._error(error, StoreUnusable) from error

    @uninterrupted()
    def record(self, events: Sequence[AnyEvent], *, limit_s: float = 2.0) -> str:
        """Take up the events of one run: all of them so far, from its RunStarted on. What is there already stays.

        Returns "" or what the user should know: that a damaged database was made anew, or that this one couldn't be
        written within `limit_s` seconds, and why. Nothing is lost then: the next call takes up the rest.
        """
        try:
            self.open(limit_s=limit_s)
            self._sound(lambda: retry(lambda: self._take_up(events, self._log_of(events)), limit_s=limit_s))
        except StoreError as error:
            self.notices.append(f"the index wasn't updated: {error.what}")
        except sa.exc.SQLAlchemyError as error:
            self.notices.append(f"the index wasn't updated: {shown(self._url)}: {explain(error)}")
        notices, self.notices = self.notices, []
        return "; ".join(notices)

    @uninterrupted()
    def rebuild(self, folders: Iterable[RunFolder]) -> int:
        """Forget these runs and take them up anew from their logs; returns how many. Runs of other machines stay as
        they are, and so does one whose log is broken, with a notice."""
        self.open()
        done = 0
        for folder in folders:
            try:
                self._rebuild(read(folder.events), folder.events)
                done += 1
            except StoreError as error:
                self._leave_out(error)
            except sa.exc.SQLAlchemyError as error:
                raise self._error(error) from error
        return done

    def forget(self, folders: Iterable[RunFolder]) -> None:
        """Drop the rows of these runs. Raises StoreError if the database can't be written."""
        self.open()
        for folder in folders:
            first = read_first(folder.events)
            if isinstance(first, RunStarted):
                uid = uid_of(first)
                try:
                    retry(lambda uid=uid: self._forget(uid), limit_s=10.0)  # type: ignore[misc]
                except sa.exc.SQLAlchemyError as error:
                    raise self._error(error) from error

    def best_for(self, program: str, environment_key: str, *, objective: str = "mean") -> list[Known]:
        """Configs with a proven gain for `program` in the environment with this identity key, newest verdict first;
        only what runs with this objective found.

        A config counts by its newest verdict alone, but for those that settle nothing. Raises StoreError if the
        database can't be read.
        """
        query = (
            sa.select(tables.verdicts, tables.configs.c.settings, tables.runs.c.run, tables.runs.c.options)
            .join(tables.runs, tables.runs.c.uid == tables.verdicts.c.uid)
            .join(tables.configs, tables.configs.c.config == tables.verdicts.c.config)
            .where(tables.runs.c.program == program, tables.runs.c.environment == environment_key)
            .where(tables.verdicts.c.verdict.not_in([verdict.value for verdict in UNSETTLED]))
            .order_by(tables.verdicts.c.time.desc(), tables.verdicts.c.place)
        )
        self.open()
        try:
            rows = retry(lambda: self.select(query), limit_s=10.0)
        except sa.exc.SQLAlchemyError as error:
            raise self._error(error) from error
        newest: dict[str, sa.RowMapping] = {}
        for row in rows:
            if _objective(row) == objective:
                newest.setdefault(row["config"], row)
        return [_known(row) for row in newest.values() if row["verdict"] == Verdict.FASTER]

    def pair_spread(self, program: str, environment_key: str, *, objective: str = "mean") -> tuple[float, int] | None:
        """Standard deviation of a gain between pairs of processes, and how many pairs showed it, pooled over all
        finalists of `program` in this environment whose runs had this objective; None if there were none. Raises
        StoreError as `best_for` does."""
        query = (
            sa.select(tables.verdicts.c.se, tables.verdicts.c.n, tables.runs.c.options)
            .join(tables.runs, tables.runs.c.uid == tables.verdicts.c.uid)
            .where(tables.runs.c.program == program, tables.runs.c.environment == environment_key)
        )
        self.open()
        try:
            rows = retry(lambda: self.select(query), limit_s=10.0)
        except sa.exc.SQLAlchemyError as error:
            raise self._error(error) from error
        known = [
            (r["se"], r["n"])
            for r in rows
            if r["se"] is not None and math.isfinite(r["se"]) and r["n"] > 1 and _objective(r) == objective
        ]
        degrees = sum(n - 1 for _, n in known)
        if not degrees:
            return None
        return math.sqrt(sum((n - 1) * n * se**2 for se, n in known) / degrees), degrees + 1

    @uninterrupted()
    def close(self) -> None:
        self._engine.dispose()

    def select(self, query: sa.Executable) -> list[sa.RowMapping]:
        """All rows of a query. Raises what SQLAlchemy raises."""
        with self._engine.connect() as connection:
            return list(connection.execute(query).mappings())

    def _prepare(self) -> None:
        if self._engine.dialect.name == "sqlite":
            self._check_file()
        with self._engine.begin() as connection:
            self._alone(connection)
            found = self._version(connection)
            if found is not None and found > tables.SCHEMA:
                raise StoreUnusable(
                    f"its tables have version {found}, and this version of the tuner uses {tables.SCHEMA}",
                    where=shown(self._url),
                    next="pip install -U xla-tuner, or use another --store",
                )
            if found is None:
                tables.metadata.create_all(connection)
                self._insert(connection, tables.version, [{"version": tables.SCHEMA}])
                return
            for version in range(found, tables.SCHEMA):
                MIGRATIONS[version](connection)
                connection.execute(sa.update(tables.version).values(version=version + 1))

    def _alone(self, connection: sa.Connection) -> None:
        """Until this transaction ends nobody else makes or migrates tables here."""
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # else Python's module commits after each table
        else:
            take_lock(connection)

    def _version(self, connection: sa.Connection) -> int | None:
        if not sa.inspect(connection).has_table(tables.version.name):
            return None
        return connection.execute(sa.select(tables.version.c.version)).scalar()

    def _check_file(self) -> None:
        """Find damage before anything is written; and let readers, such as a dashboard, not block the writer (WAL)."""
        with self._engine.connect() as connection:
            complaint = connection.execute(sa.text("PRAGMA quick_check(1)")).scalar()
            if complaint != "ok":
                raise _Damaged(str(complaint))
            connection.execute(sa.text("PRAGMA journal_mode=WAL"))

    def _sound(self, action: Callable[[], T]) -> T:
        """`action`, once more on a new database if the old one turns out to be damaged."""
        try:
            return action()
        except (sa.exc.DatabaseError, _Damaged) as error:
            if not (isinstance(error, _Damaged) or damaged(error)):
                raise
            self._replace(error)
        return action()

    def _replace(self, error: Exception) -> None:
        path = Path(self._engine.url.database or "")
        self._engine.dispose()
        try:
            aside = set_aside(path)
        except OSError as problem:
            raise StoreUnusable(
                f"the database is damaged ({explain(error)}) and can't be moved: {problem}",
                where=str(path),
                next=f"move {path} away and run the same command again",
            ) from error
        self._done.clear()
        self.renewed = True
        self.notices.append(
            f"{path}: the database was damaged ({explain(error)}); it is kept as {aside.name} and made anew from the "
            "runs' event logs"
        )
        if self._ready:
            self._prepare()
            self._catch_up()

    def _catch_up(self) -> None:
        """Take up every run of the folder that the database doesn't know to have ended well."""
        if self._runs is None:
            return
        query = sa.select(tables.runs.c.uid).where(tables.runs.c.exit_code.is_not(None), tables.runs.c.log.is_not(None))
        with self._engine.connect() as connection:
            ended = set(connection.execute(query).scalars())
        for path in sorted(self._runs.glob("*/events.jsonl")):
            try:
                first = read_first(path)
                if not isinstance(first, RunStarted) or (self._wanted is not None and not self._wanted(first)):
                    continue
                if uid_of(first) not in ended:
                    self._take_up(read(path), path)
            except StoreError as error:
                self._leave_out(error)

    def _leave_out(self, error: StoreError) -> None:
        self.notices.append(f"left out: {error.where}: {error.what}")

    def _log_of(self, events: Sequence[AnyEvent]) -> Path | None:
        """Where the log of the run with these events lies, which bears its id."""
        return self._runs / events[0].run / "events.jsonl" if self._runs and isinstance(events[0], RunStarted) else None

    def _take_up(self, events: Sequence[AnyEvent], log: Path | None) -> None:
        first = events[0]
        if not isinstance(first, RunStarted):
            raise ValueError(f"the first event of a run is {type(first).__name__}, not RunStarted")
        uid = uid_of(first)
        done = self._done.get(uid, -1)
        changes = changes_of((e for e in events if e.seq > done), uid=uid, workload=first.workload)
        changes.run.update(host=socket.gethostname(), log="" if log is None else str(log.absolute()))
        with self._engine.begin() as connection:
            for table, rows in groupby(sorted(changes.rows, key=lambda r: r[0].name), key=lambda r: r[0]):
                self._insert(connection, table, [row for _, row in rows])
            connection.execute(sa.update(tables.runs).where(tables.runs.c.uid == uid).values(**changes.run))
        self._done[uid] = events[-1].seq

    def _rebuild(self, events: Sequence[AnyEvent], log: Path) -> None:
        if not events or not isinstance(events[0], RunStarted):
            return  # killed before its first event
        uid = uid_of(events[0])
        self._done.pop(uid, None)
        retry(lambda: self._forget(uid), limit_s=10.0)
        retry(lambda: self._take_up(events, log), limit_s=10.0)

    def _forget(self, uid: str) -> None:
        with self._engine.begin() as connection:
            for table in tables.OF_RUNS:
                connection.execute(sa.delete(table).where(table.c.uid == uid))

    def _insert(self, connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
        """Insert, leaving alone each row whose key exists."""
        if connection.dialect.name == "sqlite":
            connection.execute(sqlite.insert(table).on_conflict_do_nothing(), rows)
        else:
            connection.execute(postgresql.insert(table).on_conflict_do_nothing(), rows)

    def _error(self, error: BaseException, kind: type[StoreError] = StoreError) -> StoreError:
        return kind(
            f"the database can't be used: {explain(error)}",
            where=shown(self._url),
            next="see who else holds it, or use another --store",
        )


class _Damaged(Exception):
    """SQLite's own check complains, though it raises nothing."""


def _objective(row: sa.RowMapping) -> str:
    """What the row's run made small; older runs knew the mean alone."""
    return str(row["options"].get("objective", "mean"))


def _known(row: sa.RowMapping) -> Known:
    return Known(
        config=Config.of(dict(row["settings"])),
        estimate=Estimate(**{name: row[name] for name in ("gain", "se", "low", "high", "n", "level")}),
        run=row["run"],
        time=row["time"],
    )
