"""The database's tables, version 4. A change of any of them needs a new version, a migration, and a stored database.

Raw samples are not here. They stay in the event logs: a trial's or verdict's row names its run and its event's number,
and the run's row names the log.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = [
    "OF_RUNS",
    "SCHEMA",
    "bundles",
    "cache_keys",
    "configs",
    "environments",
    "metadata",
    "programs",
    "runs",
    "sketches",
    "trials",
    "verdicts",
    "version",
]

SCHEMA = 4

metadata = sa.MetaData()

version = sa.Table("tuner_version", metadata, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))

programs = sa.Table(
    "tuner_programs",
    metadata,
    sa.Column("program", sa.String(64), primary_key=True),
    sa.Column("workload", sa.Text, nullable=False),  # file in which it was first seen
)

# What a program is made of. Programs that were measured before version 3 have no row here.
sketches = sa.Table(
    "tuner_sketches",
    metadata,
    sa.Column("program", sa.String(64), primary_key=True),
    sa.Column("operations", sa.Integer, nullable=False),  # how many in all
    sa.Column("sketch", sa.JSON, nullable=False),
    sa.Index("tuner_sketches_operations", "operations"),
)

environments = sa.Table(
    "tuner_environments",
    metadata,
    sa.Column("environment", sa.String(16), primary_key=True),  # key of the identity part
    sa.Column("identity", sa.JSON, nullable=False),
)

configs = sa.Table(
    "tuner_configs",
    metadata,
    sa.Column("config", sa.String(16), primary_key=True),
    sa.Column("settings", sa.JSON, nullable=False),  # [[name, value], …]
)

runs = sa.Table(
    "tuner_runs",
    metadata,
    # Names a run among those of all machines: the same command has the same run id on two equal ones.
    sa.Column("uid", sa.String(16), primary_key=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("identity", sa.JSON, nullable=False),
    sa.Column("options", sa.JSON, nullable=False),
    sa.Column("started", sa.Float, nullable=False),  # seconds since the epoch, as all times
    sa.Column("finished", sa.Float),
    sa.Column("exit_code", sa.Integer),
    sa.Column("program", sa.String(64)),
    sa.Column("environment", sa.String(16)),
    sa.Column("context", sa.JSON),
    sa.Column("digest", sa.String(16)),  # of the workload's file and what it imports beside it: the alias of a program
    sa.Column("name", sa.Text),  # the workload's file name
    sa.Column("form", sa.Text),  # what makes the tuned program of that file, see `form_text`
    sa.Column("first_program", sa.String(64)),  # of the first call, "" where it is `program`
    sa.Column("verdict", sa.Text),
    sa.Column("sealed", sa.Float),  # its newest bundle
    sa.Column("host", sa.Text),  # machine on which the log was taken up
    sa.Column("log", sa.Text),  # the event log there, with every raw sample; "" if that wasn't known
    sa.Index("tuner_runs_key", "program", "environment"),
    sa.Index("tuner_runs_first", "first_program"),
    sa.Index("tuner_runs_alias", "digest", "environment", "form", "sealed"),
    sa.Index("tuner_runs_name", "name", "environment", "form", "sealed"),
)


def _estimate() -> tuple[sa.Column[float], ...]:
    """An estimate's columns, empty where there is none."""
    floats: tuple[sa.Column[float], ...] = tuple(sa.Column(n, sa.Float) for n in ("gain", "se", "low", "high", "level"))
    return (*floats, sa.Column("n", sa.Integer))


trials = sa.Table(
    "tuner_trials",
    metadata,
    sa.Column("uid", sa.String(16), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("config", sa.String(16), nullable=False),
    sa.Column("value", sa.Float),
    *_estimate(),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("shared_with", sa.Integer, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("failure", sa.Text),
    sa.Column("message", sa.Text),
)

verdicts = sa.Table(
    "tuner_verdicts",
    metadata,
    sa.Column("uid", sa.String(16), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),  # among the finalists
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("config", sa.String(16), nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    *_estimate(),
    sa.Column("control_ms", sa.Float, nullable=False),
    sa.Column("best_ms", sa.Float, nullable=False),
    sa.Column("chosen", sa.Boolean, nullable=False),
    sa.Column("failure", sa.Text),
)

# What was sealed is the run's chosen verdict, the default if none is chosen.
bundles = sa.Table(
    "tuner_bundles",
    metadata,
    sa.Column("uid", sa.String(16), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("variables", sa.JSON, nullable=False),  # name → value, as emitted
)

cache_keys = sa.Table(
    "tuner_cache_keys",
    metadata,
    sa.Column("uid", sa.String(16), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),  # the bundle's
    sa.Column("key", sa.String(512), primary_key=True),
    sa.Column("module", sa.Text, nullable=False),
    sa.Column("fields", sa.JSON, nullable=False),  # part of the key → its hash
)

OF_RUNS = (trials, verdicts, bundles, cache_keys, runs)
"""The tables whose rows belong to one run, by `uid`. The others are shared by runs."""
