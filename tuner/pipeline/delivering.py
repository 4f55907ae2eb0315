"""PGLE in the form that is emitted: made ready for fresh processes, settled before anything is timed, read back."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import SessionEnded
from tuner.handoff import loading, sealing
from tuner.knobs import Config, recipe_of
from tuner.pipeline.alternate import end_all, start_all
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.pipeline.guiding import inactive, kept_profile, log_of
from tuner.pipeline.launches import guide_path, launch
from tuner.profile.guided import used_a_profile
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, CompileReply, Variant
from tuner.session import Session
from tuner.store.events import ProfileJudged

__all__ = ["delivered_profile", "fills_cache", "prepare", "read_back", "sealed_variant", "settle"]


def prepare(run: Run, config: Config, cache: Path) -> Mapping[str, str | None] | Failure:
    """Make ready what a fresh process under the emitted form of `config` needs, and return the variables that lead it
    there; {} where there is no profile to deliver.

    The profile's file is put in its place; or an executable made with it into `cache`, by a process that then ends.
    """
    if recipe_of(config) is None or run.options.pgle == "auto":
        return {}
    profile = delivered_profile(run, config)
    if profile is None:
        return inactive("confirm", f"the profile is gone: {kept_profile(run, config)}")
    if run.options.pgle == "file":
        if guide_path(run, config) != kept_profile(run, config):
            guide_path(run, config).write_bytes(profile)
        return {}
    shutil.rmtree(cache, ignore_errors=True)
    failure = _warm(run, config, cache)
    return loading(cache) if failure is None else failure


def fills_cache(run: Run, config: Config) -> bool:
    """Whether a process of `config` loads what another one made with a profile."""
    return recipe_of(config) is not None and run.options.pgle == "cache"


def sealed_variant(run: Run, config: Config) -> Variant | Failure:
    """What a process compiles that fills a cache for production: with the profile, where the cache delivers it."""
    if not fills_cache(run, config):
        return Variant(id=CONTROL)
    profile = delivered_profile(run, config)
    if profile is None:
        return inactive("seal", f"the profile is gone: {kept_profile(run, config)}")
    return Variant(id=CONTROL, profile=base64.b64encode(profile).decode())


def delivered_profile(run: Run, config: Config) -> bytes | None:
    """The profile that belongs into the bundle of `config`: none where jax takes its own."""
    if recipe_of(config) is None or run.options.pgle == "auto" or not kept_profile(run, config).exists():
        return None
    return kept_profile(run, config).read_bytes()


def settle(run: Run, config: Config, session: Session, *, function: str = "") -> Failure | None:
    """Let a process that takes its own profile do so: so many traced calls, and the recompile. Nothing of it is timed.
    Raises SessionEnded."""
    recipe = recipe_of(config)
    if recipe is None or run.options.pgle != "auto":
        return None
    entry = session.round([Arm(id=CONTROL, steps=recipe.runs + 2)], function=function)[0]
    return entry if isinstance(entry, Failure) else None


def read_back(run: Run, config: Config, session: Session, reply: CompileReply) -> Failure | None:
    """Why `session`, which has compiled `config` in its emitted form (and settled), runs without its profile; None if
    it runs with it. Where the compiler said nothing in the session that was measured, nothing is expected of it here.
    """
    if recipe_of(config) is None:
        return None
    if run.options.pgle == "cache":
        if reply.cache_hits >= max(1, reply.cache_requests):
            return None
        return inactive("confirm", "the executable that was made with the profile isn't found in its cache")
    speaks = any(isinstance(e, ProfileJudged) and e.config == config and e.said for e in run.events)
    if speaks and not used_a_profile(log_of(session)):
        how = f"from {guide_path(run, config)}" if run.options.pgle == "file" else "of its own"
        return inactive(
            "confirm", f"the compiler does not say that it uses a profile {how}, as it did where it was timed"
        )
    return None


def _warm(run: Run, config: Config, cache: Path) -> Failure | None:
    run.status("confirm", "filling a cache with what the profile makes")
    guide = sealed_variant(run, config)
    if isinstance(guide, Failure):
        return guide
    failures: list[Failure] = []
    sessions = {
        config: run.factory(launch(run, f"warm-{config.key[:8]}", role="seal", config=config, env=sealing(cache)))
    }
    try:
        start_all(run, sessions, charge=lambda _config, failure: failures.append(failure))
        if not failures:
            made = sessions[config].compile([guide]).results[0]
            failures += [made] if isinstance(made, Failure) else []
    except SessionEnded as ended:
        failures.append(ended.failure)
    finally:
        end_all(run, sessions)
    return failures[0] if failures else None
