"""What lasts: the event log of each run, the folder it lies in, and a run's identity.

The SQL index (`tuner.store.index`) and the Optuna mirror (`tuner.store.study`) are imported by whoever needs them:
SQLAlchemy and Optuna are slow to load.
"""

from __future__ import annotations

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
