"""The parent's side of a worker: real, simulated and replayed sessions behind one contract.

Names are imported when they are first used: a command that starts no worker pays for none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.session.base import Launch, Role, Session, SessionFactory
    from tuner.session.deadlines import Deadlines
    from tuner.session.fake import FakeSession
    from tuner.session.fake_machine import FakeMachine, Fault
    from tuner.session.gang import GangSession
    from tuner.session.local import LocalSession
    from tuner.session.noise import NoiseModel
    from tuner.session.package import worker_zip
    from tuner.session.replay import Replay, ReplaySession

__all__ = [
    "Deadlines",
    "FakeMachine",
    "FakeSession",
    "Fault",
    "GangSession",
    "Launch",
    "LocalSession",
    "NoiseModel",
    "Replay",
    "ReplaySession",
    "Role",
    "Session",
    "SessionFactory",
    "worker_zip",
]

_HOMES = {
    "Deadlines": "deadlines",
    "FakeMachine": "fake_machine",
    "FakeSession": "fake",
    "Fault": "fake_machine",
    "GangSession": "gang",
    "Launch": "base",
    "LocalSession": "local",
    "NoiseModel": "noise",
    "Replay": "replay",
    "ReplaySession": "replay",
    "Role": "base",
    "Session": "base",
    "SessionFactory": "base",
    "worker_zip": "package",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
