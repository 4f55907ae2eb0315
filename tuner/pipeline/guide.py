"""`tune pgle`: one PGLE profile, taken, judged, used and kept in a warmed cache, without a run around it."""

from __future__ import annotations

import base64
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tuner.errors import SessionEnded, TunerError
from tuner.handoff.cache import isolated, loading, production, sealing
from tuner.knobs import PROFILE_FLAG, XLA_FLAGS, Delivery, Recipe, check_flags
from tuner.knobs.pgle import delivered
from tuner.machine import inherited
from tuner.pipeline import workload_file
from tuner.pipeline.alone import held_devices
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.guiding import log_of, log_size
from tuner.profile import nsight_systems
from tuner.profile.guided import ProfileFacts, facts_of, profile_of, unusable, used_a_profile
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Compiled, OptionValue, Variant
from tuner.report.guide import Guide
from tuner.session import Deadlines, Launch, LocalSession, Session, SessionFactory
from tuner.session.refusal import refusal
from tuner.store.disk import disk_error

__all__ = ["GuideOptions", "guide_workload"]

_PLAIN, _GUIDED = "plain", "guided"


class GuideOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`env`: changes to the inherited environment under which the profile is taken and used, None removes a variable.
    `knobs`: parameters of build(). `folder`: where profile and cache go."""

    workload: Path
    folder: Path
    argv: tuple[str, ...] = ()
    env: dict[str, str | None] = {}
    knobs: dict[str, OptionValue] = {}
    recipe: Recipe = Recipe(runs=3, percentile=90)
    python: str = sys.executable
    platform: str | None = None


def guide_workload(
    options: GuideOptions, *, factory: SessionFactory | None = None, begins: Callable[[], None] = lambda: None
) -> Guide:
    """Take the profile, judge it, compile with it, fill a cache with that, and see that a fresh process finds it there.
    `begins` is called once all that the user wrote is found in order. Nothing is timed.

    Raises UsageError and its kinds for what the user wrote, DeviceBusy, TunerError if a worker ends or the step fails.
    """
    file = workload_file.inspect(options.workload)
    for name in options.knobs:
        file.check_knob(name, frozenset())
    environ = inherited()
    check_flags(environ.get(XLA_FLAGS, ""), where="inherited XLA_FLAGS")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, options.folder) from error
    with held_devices(options.platform, environ, command=f"tune pgle {options.workload}"):
        begins()
        made = factory or (lambda launch: LocalSession(launch, environ=environ, deadlines=Deadlines()))
        try:
            return _Guiding(options, made).run()
        except SessionEnded as ended:
            flags = XLA_FLAGS if {**environ, **options.env}.get(XLA_FLAGS) else ""
            raise refusal(ended.failure, workload=options.workload, flags=flags, log=options.folder) or _failed(
                options, ended.failure
            ) from ended


class _Guiding:
    def __init__(self, options: GuideOptions, factory: SessionFactory) -> None:
        self.options = options
        self.factory = factory
        self.cache = options.folder / "jax_cache"
        self.file = options.folder / "profile.pb"

    def run(self) -> Guide:
        with self._session(_GUIDED, {"TF_CPP_MIN_LOG_LEVEL": "0"}) as session:
            loaded = session.start()
            without = self._compiled(session, Variant(id=CONTROL))
            scale = f"{loaded.device_count} {loaded.device_kind}, {loaded.process_count} process"
            if not without.collectives:
                return self._inactive("the program has no collectives, so that there is nothing to place better", scale)
            recipe = self.options.recipe
            reply = session.pgle(Variant(id=_PLAIN), runs=recipe.runs, percentile=recipe.percentile)
            if isinstance(reply, Failure):
                if reply.kind in (FailureClass.PGLE_INACTIVE, FailureClass.UNSUPPORTED):
                    return self._inactive(reply.message, scale)
                raise _failed(self.options, reply)
            facts = facts_of(reply)
            if cause := unusable(facts):
                return self._inactive(cause, scale, facts)
            profile = profile_of(reply, facts)
            self.file.write_bytes(profile)
            before = log_size(session)
            guided = Variant(id=_GUIDED, profile=base64.b64encode(profile).decode())
            changed = self._compiled(session, guided).code != without.code
            said = used_a_profile(log_of(session, before))
        if not said and not changed:
            return self._inactive(
                "the compiler says nothing of the profile, and makes the same without it", scale, facts
            )
        found = self._warmed(guided.profile)
        return Guide(
            folder=self.options.folder,
            facts=facts,
            scale=scale,
            said=said,
            changed=changed,
            found=found,
            profile=self.file,
            env_file=self._env_file(),
            environment={XLA_FLAGS: f"--{PROFILE_FLAG}={self.file}"},
            auto=delivered(f"{recipe.runs}x{recipe.percentile}", Delivery(form="auto"))[0],
            nsight=self._nsight(),
        )

    def _warmed(self, profile: str | None) -> bool:
        """Fill the cache in one process, and whether another, without the profile, finds the step there."""
        shutil.rmtree(self.cache, ignore_errors=True)
        expect = delivered("1x1", Delivery(form="cache"))[0]
        with self._session("warm", {**expect, **sealing(self.cache)}) as session:
            session.start()
            self._compiled(session, Variant(id=CONTROL, profile=profile))
            entry = session.round([Arm(id=CONTROL, steps=1)])[0]
            if isinstance(entry, Failure):
                raise _failed(self.options, entry)
        with self._session("found", {**expect, **loading(self.cache)}) as session:
            session.start()
            reply = session.compile([Variant(id=CONTROL)])
            if isinstance(reply.results[0], Failure):
                raise _failed(self.options, reply.results[0])
            return reply.cache_hits >= max(1, reply.cache_requests)

    @contextmanager
    def _session(self, name: str, env: dict[str, str | None]) -> Iterator[Session]:
        options = self.options
        launch = Launch(
            name=name,
            role="profile",
            workload=options.workload,
            log=options.folder / f"{name}-{time.strftime('%H%M%S')}.log",
            python=options.python,
            env={**options.env, **isolated(), **env},
            argv=options.argv,
            platform=options.platform,
            knobs=options.knobs,
        )
        session = self.factory(launch)
        try:
            yield session
        finally:
            session.close()

    def _compiled(self, session: Session, variant: Variant) -> Compiled:
        made = session.compile([variant]).results[0]
        if isinstance(made, Failure):
            raise _failed(self.options, made)
        return made

    def _inactive(self, cause: str, scale: str, facts: ProfileFacts | None = None) -> Guide:
        return Guide(folder=self.options.folder, facts=facts, scale=scale, cause=cause)

    def _production(self) -> dict[str, str]:
        """Under which a program finds what the profile made."""
        given = {name: value for name, value in self.options.env.items() if value is not None}
        return {
            **given,
            **delivered("1x1", Delivery(form="cache"))[0],
            **production(self.cache),
            "JAX_ENABLE_COMPILATION_CACHE": "true",
        }

    def _env_file(self) -> Path:
        path = self.options.folder / "pgle.env"
        path.write_text("".join(f"{name}={value}\n" for name, value in sorted(self._production().items())))
        return path

    def _nsight(self) -> tuple[str, ...]:
        """Nsight Systems and the profile don't go together in one process; this one needs no profile any more."""
        program = (self.options.python, str(self.options.workload), *self.options.argv)
        words = (f"{name}={value}" for name, value in sorted(self._production().items()))
        return ("env", *words, *nsight_systems(program, output=self.options.folder / "nsys", delay_s=0.0))


def _failed(options: GuideOptions, failure: Failure) -> TunerError:
    return TunerError(failure.message, where=failure.phase, next=f"see {options.folder}/*.log")
