"""Brings a database of an older version up to the tables' version, in one transaction, losing nothing.

What an older version didn't know is taken from the event logs afterwards: a run's row without a `log` is taken up again
(see `Index`). Each step changes the version before it into the next one and stays as it is for good.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import PurePath

import sqlalchemy as sa

from tuner.store.held import form_text

__all__ = ["MIGRATIONS"]


def _from_1(connection: sa.Connection) -> None:
    """Runs get their workload's digest and name, and where their log lies; bundles and cache keys get tables."""
    for column, kind in (
        ("digest", "VARCHAR(16)"),
        ("name", "TEXT"),
        ("first_program", "VARCHAR(64)"),
        ("verdict", "TEXT"),
        ("host", "TEXT"),
        ("log", "TEXT"),
    ):
        connection.execute(sa.text(f"ALTER TABLE tuner_runs ADD COLUMN {column} {kind}"))
    for name, columns in (
        ("first", "first_program"),
        ("alias", "digest, environment, started"),
        ("name", "name, environment, started"),
    ):
        connection.execute(sa.text(f"CREATE INDEX tuner_runs_{name} ON tuner_runs ({columns})"))
    for uid, identity, workload in connection.execute(sa.text("SELECT uid, identity, workload FROM tuner_runs")).all():
        parts = json.loads(identity) if isinstance(identity, str) else identity
        connection.execute(
            sa.text("UPDATE tuner_runs SET digest = :digest, name = :name WHERE uid = :uid"),
            {"digest": parts.get("workload"), "name": PurePath(workload).name, "uid": uid},
        )
    key = "uid VARCHAR(16) NOT NULL, seq INTEGER NOT NULL"
    for table, columns in (
        ("bundles", "number INTEGER NOT NULL, time FLOAT NOT NULL, variables JSON NOT NULL, PRIMARY KEY (uid, seq)"),
        (
            "cache_keys",
            "key VARCHAR(512) NOT NULL, module TEXT NOT NULL, fields JSON NOT NULL, PRIMARY KEY (uid, seq, key)",
        ),
    ):
        connection.execute(sa.text(f"CREATE TABLE tuner_{table} ({key}, {columns})"))


def _from_2(connection: sa.Connection) -> None:
    """Programs get sketches; logs of older versions have none, so the table begins empty."""
    connection.execute(
        sa.text(
            "CREATE TABLE tuner_sketches "
            "(program VARCHAR(64) NOT NULL, operations INTEGER NOT NULL, sketch JSON NOT NULL, PRIMARY KEY (program))"
        )
    )
    connection.execute(sa.text("CREATE INDEX tuner_sketches_operations ON tuner_sketches (operations)"))


def _from_3(connection: sa.Connection) -> None:
    """Runs get the form in which they took their workload and the time of their newest bundle, which the keys of
    look-up have too."""
    connection.execute(sa.text("ALTER TABLE tuner_runs ADD COLUMN form TEXT"))
    connection.execute(sa.text("ALTER TABLE tuner_runs ADD COLUMN sealed FLOAT"))
    newest = "SELECT MAX(b.time) FROM tuner_bundles b WHERE b.uid = tuner_runs.uid"
    connection.execute(sa.text(f"UPDATE tuner_runs SET sealed = ({newest})"))
    for name, column in (("alias", "digest"), ("name", "name")):
        connection.execute(sa.text(f"DROP INDEX tuner_runs_{name}"))
        connection.execute(
            sa.text(f"CREATE INDEX tuner_runs_{name} ON tuner_runs ({column}, environment, form, sealed)")
        )
    for uid, options in connection.execute(sa.text("SELECT uid, options FROM tuner_runs")).all():
        told = json.loads(options) if isinstance(options, str) else options
        form = form_text(told.get("hold", ""), told.get("argv", ""))
        connection.execute(sa.text("UPDATE tuner_runs SET form = :form WHERE uid = :uid"), {"form": form, "uid": uid})


MIGRATIONS: Mapping[int, Callable[[sa.Connection], None]] = {1: _from_1, 2: _from_2, 3: _from_3}
"""Version → what makes the next one of it."""
