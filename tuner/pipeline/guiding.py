"""PGLE in a session: a config's profile is taken, judged and kept; and whether the compiler used it is read back."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.knobs import PGLE, Config, processes, recipe_of, split, variant
from tuner.profile.guided import ProfileFacts, facts_of, profile_of, unusable, used_a_profile
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Compiled
from tuner.store.events import ProfileJudged

if TYPE_CHECKING:
    from tuner.pipeline.context import Run
    from tuner.session import Session

__all__ = ["compile_guided", "inactive", "kept_profile", "log_of", "log_size"]


def compile_guided(run: Run, session: Session, config: Config, without: Compiled) -> Compiled | Failure:
    """Compile `config`, which asks for a PGLE profile, with one that is taken under its other settings in this session.

    `without`: what these compile to by themselves. One after another, so that what the compiler says is of this one. A
    profile that can't be had, is not to be believed or not used is a failure. The one that is used is kept: what is
    emitted takes it from there. Raises SessionEnded.
    """
    recipe = recipe_of(config)
    if recipe is None:
        raise ValueError(f"{config} asks for no profile")
    if why := _undeliverable(run, config):
        return inactive("compile", why)

    def judged(facts: ProfileFacts | None, cause: str, *, said: bool = False, changed: bool = False) -> None:
        run.emit(
            ProfileJudged(
                session=session.launch.log.stem,
                config=config,
                runs=recipe.runs,
                percentile=recipe.percentile,
                facts=facts,
                cause=cause,
                said=said,
                changed=changed,
            )
        )

    option = split(config, run.space)[1]
    # The profiled executable goes under no handle of ours, and is never timed.
    plain = variant(config.key, option.drop(PGLE), run.space)
    reply = session.pgle(plain, runs=recipe.runs, percentile=recipe.percentile)
    if isinstance(reply, Failure):
        judged(None, reply.message)
        return reply
    facts = facts_of(reply)
    if cause := unusable(facts):
        judged(facts, cause)
        return inactive("pgle", cause)
    profile = profile_of(reply, facts)
    before = log_size(session)
    guided = variant(config.key, option, run.space, profile=base64.b64encode(profile).decode())
    made = session.compile([guided]).results[0]
    if isinstance(made, Failure):
        judged(facts, made.message)
        return made
    said, changed = used_a_profile(log_of(session, before)), made.code != without.code
    cause = "" if said or changed else "the compiler says nothing of the profile, and makes the same without it"
    judged(facts, cause, said=said, changed=changed)
    if cause:
        return inactive("compile", cause)
    run.folder.guides.mkdir(exist_ok=True)
    kept_profile(run, config).write_bytes(profile)
    return made


def kept_profile(run: Run, config: Config) -> Path:
    """The file with the profile that `config` was last compiled with."""
    return run.folder.guides / f"{config.key[:12]}.pb"


def inactive(phase: str, why: str) -> Failure:
    """A profile was asked for and isn't used."""
    return Failure(kind=FailureClass.PGLE_INACTIVE, phase=phase, message=why)


def log_size(session: Session) -> int:
    """Bytes that the session has printed so far."""
    try:
        return session.launch.log.stat().st_size
    except OSError:
        return 0


def log_of(session: Session, start: int = 0) -> str:
    """What it printed from there on."""
    try:
        with session.launch.log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _undeliverable(run: Run, config: Config) -> str:
    """Why what a profile does can't reach production under `config`; "" if it can."""
    if run.options.pgle == "cache" and processes(run.held.join(config), run.device_count) > 1:
        return (
            "a warmed cache has the executable of one process, and here are several: ranks with different schedules "
            "wait for each other for ever. --pgle file or auto delivers it to all"
        )
    return ""
