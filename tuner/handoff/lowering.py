"""What a workload's step lowers to, asked of a fresh process; nothing is compiled."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import SessionEnded
from tuner.handoff.cache import isolated
from tuner.handoff.contents import Control
from tuner.knobs import XLA_FLAGS
from tuner.protocol.failure import Failure
from tuner.session import Deadlines, Launch, LocalSession, SessionFactory
from tuner.session.refusal import refusal

__all__ = ["lowered_program"]


def lowered_program(
    workload: Path,
    *,
    control: Control | None,
    python: str,
    environ: Mapping[str, str],
    factory: SessionFactory | None = None,
) -> str:
    """The program of the step's first call, under the default settings of `control` (None: no settings at all).

    Raises WorkloadError and its kin if the process can't load or trace it for what the user wrote, SessionEnded if it
    ends otherwise. `factory` makes sessions, for tests.
    """
    changes: dict[str, str | None] = {**isolated(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with tempfile.TemporaryDirectory(prefix="tuner-lower-") as folder:
        launch = Launch(
            name="lower",
            role="probe",
            workload=workload,
            log=Path(folder) / "lower.log",
            python=python,
            env={**changes, **(control.env if control else {})},
            argv=control.argv if control else (),
            platform=control.platform if control else None,
            knobs=control.knobs if control else {},
        )
        session = factory(launch) if factory else LocalSession(launch, environ=environ, deadlines=Deadlines())
        try:
            session.start()
            reply = session.lower()
            if isinstance(reply, Failure):
                raise SessionEnded(reply)
        except SessionEnded as ended:
            flags = "inherited XLA_FLAGS" if XLA_FLAGS in environ else ""
            raise refusal(ended.failure, workload=workload, flags=flags, log=None) or ended from None
        finally:
            session.close()
    return reply.program
