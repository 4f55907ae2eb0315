"""How each kind of session is launched: which variables it gets, on top of what was inherited."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tuner.handoff.cache import isolated
from tuner.knobs import EXPECT_PGLE, PGLE, Config, Delivery, environment, pins, processes, recipe_of, workload_knobs
from tuner.machine import relevant
from tuner.pipeline.context import Run
from tuner.session import Launch, Role

__all__ = ["OWN_PGLE", "emitted", "guide_path", "launch"]

# Several processes live on one card while they are compared; each must take only what it needs.
_SHARED_CARD = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# The compiler says only as INFO that it was handed a profile.
_TALKATIVE = {"TF_CPP_MIN_LOG_LEVEL": "0"}
OWN_PGLE = ("JAX_ENABLE_PGLE", EXPECT_PGLE)
"""Make jax recompile with a profile of its own, or look for what was: the knob's business."""


def emitted(run: Run, config: Config) -> dict[str, str | None]:
    """The whole of `config` (and what the user holds) as changes to the inherited environment: the production form."""
    whole = run.held.join(config)
    delivery = Delivery(form=run.options.pgle, path=str(guide_path(run, config)) if recipe_of(config) else "")
    away = {name: None for name in OWN_PGLE if name in run.inherited}
    return away | environment(whole, run.space, run.inherited, delivery=delivery)


def guide_path(run: Run, config: Config) -> Path:
    """Where the file with `config`'s PGLE profile is when it is delivered as one."""
    folder = Path(run.options.install_path).absolute() if run.options.install_path else run.folder.guides
    return folder / f"{config.key[:12]}.pb"


def launch(
    run: Run,
    name: str,
    *,
    role: Role,
    config: Config,
    env: Mapping[str, str | None] | None = None,
    fills_cache: bool = False,
) -> Launch:
    """A launch of the run's workload under `config`, rendered wholly as environment.

    No session reads or writes a compilation cache it inherited: a trial would load another one's kernels. `env`
    changes what results, last. `fills_cache`: as in `Launch`. The user's launcher starts the session if there is one;
    else the config's layout says over how many processes.
    """
    launcher = tuple(shlex.split(run.options.launch))
    rendered = emitted(run, config)
    changes: dict[str, str | None] = {**isolated(), **rendered}
    for variable, value in _SHARED_CARD.items():
        if variable not in run.inherited and variable not in rendered:
            changes[variable] = value
    if PGLE in run.space and run.options.platform != "cpu" and (len(run.devices) != 1 or launcher):
        changes |= _TALKATIVE
    outside = {**relevant(run.inherited), **{name: run.inherited[name] for name in pins(run.inherited)}}
    return Launch(
        name=name,
        role=role,
        workload=run.workload.path,
        log=run.folder.logs / f"{run.sessions_started:03d}-{name}.log",
        python=run.options.python,
        env={**changes, **(env or {})},
        config=config,
        argv=run.options.argv,
        platform=run.options.platform,
        knobs={**run.workload_knobs, **workload_knobs(run.held.join(config), run.space)},
        processes=1 if launcher else processes(run.held.join(config), run.device_count),
        launcher=launcher,
        pins={name: value for name, value in outside.items() if name not in changes} if launcher else {},
        fills_cache=fills_cache,
    )
