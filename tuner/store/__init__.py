"""What lasts: the event log of each run, the folder it lies in, and a run's identity.

The SQL index (`tuner.store.index`) and the Optuna mirror (`tuner.store.study`) are imported by whoever needs them:
SQLAlchemy and Optuna are slow to load. Names are imported when they are first used: looking up a result must not wait
for all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.store.find import find_run, runs_at
    from tuner.store.folder import RunFolder, Store, locate_store, open_store
    from tuner.store.identity import earlier_run, new_run, run_id, run_identity
    from tuner.store.log import EventLog, read
    from tuner.store.sources import local_sources, workload_digest

__all__ = [
    "EventLog",
    "RunFolder",
    "Store",
    "earlier_run",
    "find_run",
    "local_sources",
    "locate_store",
    "new_run",
    "open_store",
    "read",
    "run_id",
    "run_identity",
    "runs_at",
    "workload_digest",
]

_HOMES = {
    "EventLog": "log",
    "RunFolder": "folder",
    "Store": "folder",
    "earlier_run": "identity",
    "find_run": "find",
    "local_sources": "sources",
    "locate_store": "folder",
    "new_run": "identity",
    "open_store": "folder",
    "read": "log",
    "run_id": "identity",
    "run_identity": "identity",
    "runs_at": "find",
    "workload_digest": "sources",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
