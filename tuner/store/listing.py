"""What the database holds, as rows: lists by kind, and everything about one thing by how its key begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.store.reader import Reader

__all__ = ["KINDS", "listed", "matching"]

_QUERIES = {
    "runs": """
        SELECT r.started, r.run, r.name AS workload, r.verdict, r.exit_code, r.finished, r.program, r.environment,
               (SELECT COUNT(*) FROM tuner_trials t WHERE t.uid = r.uid) AS trials, r.host, r.log, r.uid
        FROM tuner_runs r {where} ORDER BY r.started""",
    "bundles": """
        SELECT b.time, r.name AS workload, b.number, r.run, r.verdict, v.gain, v.low, v.high, c.settings, r.program,
               r.environment, r.host, r.log, b.variables, r.uid,
               (SELECT COUNT(*) FROM tuner_cache_keys k WHERE k.uid = b.uid AND k.seq = b.seq) AS cache_keys
        FROM tuner_bundles b JOIN tuner_runs r ON r.uid = b.uid
        LEFT JOIN tuner_verdicts v ON v.uid = r.uid AND v.chosen LEFT JOIN tuner_configs c ON c.config = v.config
        {where} ORDER BY b.time""",
    "verdicts": """
        SELECT v.time, r.name AS workload, r.run, v.verdict, v.gain, v.low, v.high, v.n, v.control_ms, v.best_ms,
               v.chosen, c.settings, r.program, r.environment, r.uid
        FROM tuner_verdicts v JOIN tuner_runs r ON r.uid = v.uid JOIN tuner_configs c ON c.config = v.config
        {where} ORDER BY v.time, v.place""",
    "programs": """
        SELECT MIN(r.started) AS started, r.program, r.name AS workload, COUNT(*) AS runs
        FROM tuner_runs r {where} {and} r.program IS NOT NULL GROUP BY r.program, r.name ORDER BY MIN(r.started)""",
    "environments": """
        SELECT e.environment, e.identity, COUNT(*) AS runs FROM tuner_runs r
        JOIN tuner_environments e ON e.environment = r.environment
        {where} GROUP BY e.environment ORDER BY MIN(r.started)""",
    "keys": """
        SELECT r.run, b.number, k.module, k.key, k.fields FROM tuner_cache_keys k
        JOIN tuner_bundles b ON b.uid = k.uid AND b.seq = k.seq JOIN tuner_runs r ON r.uid = k.uid
        {where} ORDER BY b.time, k.module, k.key""",
}
KINDS = tuple(_QUERIES)
"""What can be listed."""

# How each kind of thing is named, and what is told of it.
_NAMED: Mapping[str, tuple[str, ...]] = {
    "r.run": ("runs", "verdicts", "bundles", "keys"),
    "r.uid": ("runs", "verdicts", "bundles", "keys"),
    "r.program": ("programs", "runs", "bundles"),
    "r.environment": ("environments", "runs", "bundles"),
    "r.name": ("programs", "environments", "runs", "bundles"),
}


def listed(reader: Reader, kind: str, *, workload: str = "") -> list[dict[str, Any]]:
    """Rows of one of KINDS, the oldest first; only those of workloads whose file is called `workload`, if given."""
    return _rows(reader, kind, "r.name = :workload" if workload else "", workload=workload)


def matching(reader: Reader, name: str) -> dict[str, list[dict[str, Any]]]:
    """Everything about the runs, programs, environments or workloads whose key begins with `name`, by kind; {} if there
    is no such thing. A key that is `name` itself goes before those that begin so."""
    for condition, value in (("{} = :key", name), ("{} LIKE :key ESCAPE '!'", _begins(name))):
        for column, kinds in _NAMED.items():
            where = condition.format(column)
            if reader.rows(f"SELECT r.uid FROM tuner_runs r WHERE {where} LIMIT 1", key=value):
                return {kind: _rows(reader, kind, where, key=value) for kind in kinds}
    return {}


def _rows(reader: Reader, kind: str, where: str, **values: str) -> list[dict[str, Any]]:
    query = _QUERIES[kind].replace("{where}", f"WHERE {where}" if where else "")
    query = query.replace("{and}", "AND" if where else "WHERE")
    return reader.rows(query, **{name: value for name, value in values.items() if f":{name}" in query})


def _begins(name: str) -> str:
    escaped = name.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"{escaped}%"
