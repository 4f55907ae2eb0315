"""Frees candidates and their executables."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import jax

from tuner.protocol.messages import Release, Released
from tuner.worker.session import WorkerSession

__all__ = ["release", "released"]


def released(session: WorkerSession, request: Release) -> Released:
    """Free the handles; ids that are not there are fine (a variant that failed to compile has none)."""
    release(session, request.ids)
    return Released(live_executables=len(jax.devices()[0].client.live_executables()))


def release(session: WorkerSession, handles: Iterable[str]) -> None:
    """Drop the handles, and each executable that no other handle uses.

    Dropping alone frees nothing: jax's own caches hold the executables for as long as the base function lives, and that
    is the session. Clearing one candidate's cache leaves the others callable without a new compile.
    """
    gone = [session.candidates.pop(handle) for handle in handles if handle in session.candidates]
    used = {candidate.key for candidate in session.candidates.values()}
    for candidate in gone:
        if candidate.key not in used:
            candidate.clear()
    if gone:
        del gone, candidate
        gc.collect()
