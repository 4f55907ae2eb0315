"""Programs in the store that are like a new one, with what was best for them. It takes bounded time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from tuner.errors import StoreError
from tuner.knobs.config import Config
from tuner.machine.environment import Environment
from tuner.measure.types import Verdict
from tuner.protocol.messages import Sketch
from tuner.store import tables
from tuner.store.database import explain
from tuner.store.index import Index
from tuner.store.neighbour import NEAR, Neighbour, apart, apart_places

__all__ = ["neighbours"]

# Of programs with a gain so many are compared on each side, those whose number of operations is nearest: a near one has
# about as many, and a long list would cost time and change little.
_COMPARED = 200
# So many of the nearest programs are asked for their runs; so many come back.
_ASKED = 8
_MOST = 3


def neighbours(
    index: Index, program: str, sketch: Sketch, environment: Environment, *, objective: str = "mean"
) -> tuple[Neighbour, ...]:
    """At most three runs, nearest first, that found a gain for a program like this one, or for this one elsewhere: in
    another environment of the same platform. Runs with another objective don't count.

    Raises StoreError if the database can't be read.
    """
    index.open()
    try:
        return _neighbours(index, program, sketch, environment, objective)
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"the database can't be read: {explain(error)}") from error


def _neighbours(
    index: Index, program: str, sketch: Sketch, environment: Environment, objective: str
) -> tuple[Neighbour, ...]:
    places = _places(index, environment)
    if not places:
        return ()
    near = {name: parts for name, parts in _programs(index, program, sketch, list(places)) if _sum(parts) <= NEAR}
    found: list[tuple[float, float, Neighbour]] = []
    for name in sorted(near, key=lambda n: (n != program, _sum(near[n])))[:_ASKED]:
        seen: set[str] = set()
        for row in _runs(index, name, list(places)):
            elsewhere = (name, row["environment"]) != (program, environment.key)
            if row["environment"] in seen or not elsewhere or row["options"].get("objective", "mean") != objective:
                continue
            seen.add(row["environment"])
            identity, between = places[row["environment"]]
            parts = near[name] | between
            neighbour = Neighbour(
                run=row["run"],
                workload=row["name"] or row["workload"],
                program=name,
                distance=_sum(parts),
                apart=parts,
                identity=identity,
                configs=_configs(index, row["uid"]),
            )
            found.append((neighbour.distance, -row["started"], neighbour))
    nearest = sorted((f for f in found if f[0] <= NEAR and f[2].configs), key=lambda f: f[:2])
    return tuple(neighbour for _, _, neighbour in nearest[:_MOST])


def _places(index: Index, here: Environment) -> dict[str, tuple[dict[str, str], dict[str, float]]]:
    """Environments of this platform: key → identity, and what lies between it and this one."""
    rows = index.select(sa.select(tables.environments))
    between = {row["environment"]: (row["identity"], apart_places(here.identity, row["identity"])) for row in rows}
    return {key: (identity, parts) for key, (identity, parts) in between.items() if parts is not None}


def _programs(index: Index, program: str, sketch: Sketch, places: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    """Programs with a gain in one of these places, and how far each is from `sketch`."""
    has = sum(sketch.operations.values())
    table, runs = tables.sketches, tables.runs
    gained = sa.exists().where(
        runs.c.program == table.c.program, runs.c.environment.in_(places), runs.c.verdict == Verdict.FASTER.value
    )
    chosen = sa.select(table.c.program, table.c.sketch)
    sides = (
        chosen.where(table.c.program == program, gained),
        chosen.where(table.c.operations >= has, gained).order_by(table.c.operations).limit(_COMPARED),
        chosen.where(table.c.operations < has, gained).order_by(table.c.operations.desc()).limit(_COMPARED),
    )
    rows = [row for side in sides for row in index.select(side)]
    return [(row["program"], apart(sketch, msgspec.convert(row["sketch"], Sketch))) for row in rows]


def _runs(index: Index, program: str, places: Sequence[str]) -> list[sa.RowMapping]:
    """Newest runs that found a gain for the program in one of these places."""
    runs = tables.runs
    query = (
        sa.select(
            runs.c.uid, runs.c.run, runs.c.workload, runs.c.name, runs.c.environment, runs.c.options, runs.c.started
        )
        .where(runs.c.program == program, runs.c.environment.in_(places), runs.c.verdict == Verdict.FASTER.value)
        .order_by(runs.c.started.desc())
        .limit(_COMPARED)
    )
    return index.select(query)


def _configs(index: Index, uid: str) -> tuple[Config, ...]:
    """The run's finalists with a gain, the one that was emitted first."""
    query = (
        sa.select(tables.configs.c.settings)
        .join(tables.verdicts, tables.verdicts.c.config == tables.configs.c.config)
        .where(tables.verdicts.c.uid == uid, tables.verdicts.c.verdict == Verdict.FASTER.value)
        .order_by(tables.verdicts.c.chosen.desc(), tables.verdicts.c.place)
    )
    return tuple(Config.of(dict(row["settings"])) for row in index.select(query))


def _sum(parts: dict[str, float]) -> float:
    return sum(parts.values())
