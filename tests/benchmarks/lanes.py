"""Do options and XLA_FLAGS mean the same? Every option-lane setting, compiled both ways, on one card.

    python tests/benchmarks/lanes.py workloads/conv.py --space gpu --space precision --out lanes.json

A living process compiles the default and then every setting as a compile option, and keeps what the autotuner chose.
For each setting a new process loads those choices and compiles the step with the setting in its environment. Equal
fingerprints prove the lane, unless the setting acts where no fingerprint shows it. Where they differ, or can't tell,
both programs are timed in turns (--time all|different|code|none; `code`: only where they differ): a gain that only one
form has is a lie of the other. Several processes compile at once, since nothing is left to autotune; nothing does
while anything is timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import SessionEnded
from tuner.handoff.cache import isolated
from tuner.knobs import UNSET, Config, SearchSpace, environment, load_spaces, variant
from tuner.measure import estimate
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, Compiled, Variant
from tuner.session import Deadlines, Launch, LocalSession

CONTROL = "control"
# For each process that compiles, so many live at most until they are timed.
_ALIVE = 3


class Sessions:
    """Starts workers on one card. `choices`: where the autotuner's choices are kept."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder, self.numbers = options, folder, itertools.count(1)
        self.choices = folder / "autotuned.txt"
        self.card = {} if options.card is None else {"CUDA_VISIBLE_DEVICES": str(options.card)}

    def living(self) -> LocalSession:
        """One that autotunes, and keeps what it chose."""
        return self.start({}, flags=f"--xla_gpu_dump_autotune_results_to={self.choices}")

    def start(self, changes: dict[str, str | None], *, flags: str) -> LocalSession:
        number = next(self.numbers)
        env = {**isolated(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **self.card, **changes}
        env["XLA_FLAGS"] = " ".join(filter(None, [flags, changes.get("XLA_FLAGS")]))
        launch = Launch(
            name=f"lanes-{number}",
            role="probe",
            workload=self.options.workload,
            log=self.folder / f"{number:03}.log",
            python=sys.executable,
            env=env,
            platform=self.options.platform,
        )
        session = LocalSession(launch, environ=os.environ, deadlines=Deadlines())
        try:
            self.loaded = session.start()
        except BaseException:
            session.close()
            raise
        return session


def settings(space: SearchSpace, session: LocalSession, only: str, values: str) -> list[Config]:
    """The settings of the option lane that this jaxlib has, each with what it requires."""
    knobs = [k for k in space.knobs if k.lane == "option" and re.search(only, k.name)]
    types = session.probe([k.name for k in knobs if k.carrier == "xla_flag"]).types
    known = [k for k in knobs if k.carrier != "xla_flag" or types.get(k.name) is not None]
    chosen = {k.name: [v for v in k.values if v != UNSET][: 1 if values == "first" else None] for k in known}
    return [Config.of({**k.requires, k.name: value}) for k in known for value in chosen[k.name]]


def as_options(
    sessions: Sessions, configs: list[Config], space: SearchSpace
) -> tuple[LocalSession, Compiled | Failure, dict[Config, Compiled | Failure], dict[Config, str]]:
    """A living process with the default and every setting compiled as options; what kills a process that compiles it
    alone is left out, and why."""
    deadly: dict[Config, str] = {}
    while True:
        living = sessions.living()
        try:
            first = living.compile([Variant(id=CONTROL)]).results[0]  # alone: its autotuning is everybody's
            rest = [config for config in configs if config not in deadly]
            variants = [variant(c.key, c, space) for c in rest]
            made = living.compile(variants, threads=sessions.options.threads).results
            return living, first, dict(zip(rest, made, strict=True)), deadly
        except SessionEnded as ended:
            living.close()
            config = guilty(sessions, rest, space)
            if config is None:
                raise
            deadly[config] = ended.failure.message
            print(f"{config}: option fails, {ended.failure.message}", flush=True)


def guilty(sessions: Sessions, configs: list[Config], space: SearchSpace) -> Config | None:
    """The first that ends a process, one compiled after the other."""
    with closing(sessions.living()) as alone:
        for config in configs:
            try:
                alone.compile([variant(config.key, config, space)])
            except SessionEnded:
                return config
    return None


def turns(living: LocalSession, handle: str, fresh: LocalSession, *, seconds: float) -> dict[str, Any]:
    """Gains over the living control, in turns: the option's program, and the fresh process's."""

    def block(session: LocalSession, name: str, steps: int) -> float:
        (made,) = session.round([Arm(id=name, steps=steps)])
        if not isinstance(made, Block):
            form = "environment" if session is fresh else "control" if name == CONTROL else "option"
            raise RuntimeError(f"{form}: {made.message}")
        return made.step_s

    block(fresh, CONTROL, 3)
    steps = max(1, round(0.1 / block(living, CONTROL, 3)))
    rng, rows, end = np.random.default_rng(0), [], time.monotonic() + seconds
    while len(rows) < 6 or time.monotonic() < end:
        forms = [("control", living, CONTROL), ("option", living, handle), ("environment", fresh, CONTROL)]
        row = {name: block(session, arm, steps) for name, session, arm in (forms[i] for i in rng.permutation(3))}
        rows.append(row)
    gains = {name: [float(np.log(r["control"] / r[name])) for r in rows] for name in ("option", "environment")}
    apart = estimate([e - o for o, e in zip(gains["option"], gains["environment"], strict=True)])
    return {
        "gains": gains,
        "option": estimate(gains["option"]).gain,
        "environment": estimate(gains["environment"]).gain,
        "environment_minus_option": [apart.gain, apart.low, apart.high],
    }


def compiled(
    sessions: Sessions, work: tuple[Config, Compiled], space: SearchSpace
) -> tuple[dict[str, Any], LocalSession | None]:
    """One setting in a process of its own, whose environment has it; that process, if it is to be timed."""
    options, (config, made) = sessions.options, work
    row: dict[str, Any] = {"settings": config.as_dict(), "option_code": made.code, "covers": made.code_covers}
    load = f"--xla_gpu_load_autotune_results_from={sessions.choices}" if sessions.choices.exists() else ""
    try:
        fresh = sessions.start(environment(config, space, {}), flags=load)
    except SessionEnded as ended:
        return {**row, "verdict": "environment fails", "why": ended.failure.message}, None
    try:
        result = fresh.compile([Variant(id=CONTROL)]).results[0]
    except SessionEnded as ended:
        fresh.close()
        return {**row, "verdict": "environment fails", "why": ended.failure.message}, None
    if not isinstance(result, Compiled):
        fresh.close()
        return {**row, "verdict": "environment fails", "why": result.message}, None
    row |= {"environment_code": result.code, "same_code": result.code == made.code}
    shown = {"hlo", "codegen"} if made.code_covers == "hlo+codegen" else {"hlo"}
    blind = any(space.knob(name).acts_on not in shown for name in config.names)
    row["verdict"] = ("same code, but it may not show" if blind else "same") if row["same_code"] else "different code"
    timed = {"all": True, "none": False, "code": not row["same_code"], "different": row["verdict"] != "same"}
    if timed[options.time]:
        return row, fresh
    fresh.close()
    return row, None


def timed(row: dict[str, Any], living: LocalSession, handle: str, fresh: LocalSession, options: Any) -> dict[str, Any]:
    """`row` with what turns of both forms say."""
    try:
        times = turns(living, handle, fresh, seconds=options.seconds)
    except (SessionEnded, RuntimeError) as error:
        return {**row, "verdict": "can't be timed", "why": str(error)}
    finally:
        fresh.close()
    _, low, high = times["environment_minus_option"]
    return {**row, "times": times, "apart": low > options.margin or high < -options.margin}


def late_or(began: float, options: Any, function: Callable[..., Any], *args: Any) -> Any:
    """None once the budget is over."""
    return None if time.monotonic() - began > options.budget else function(*args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path)
    parser.add_argument("--space", action="append", required=True, help="a search space (repeatable)")
    parser.add_argument("--only", default="", help="knobs whose names match this expression")
    parser.add_argument("--values", choices=["first", "all"], default="first")
    parser.add_argument("--time", choices=["all", "different", "code", "none"], default="different")
    parser.add_argument("--seconds", type=float, default=3.0, help="timed seconds a setting")
    parser.add_argument("--margin", type=float, default=0.005, help="how far apart two forms must be to count (log)")
    parser.add_argument("--processes", type=int, default=1, help="that compile at once")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--budget", type=float, default=540.0, help="no setting is begun after so many seconds")
    parser.add_argument("--skip", type=Path, help="an earlier result: what it has is not done again")
    parser.add_argument("--card", type=int, help="which GPU")
    parser.add_argument("--platform")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.workload = options.workload.resolve()
    began, space = time.monotonic(), load_spaces(options.space)
    old = json.loads(options.skip.read_text())["settings"] if options.skip else []
    done = {json.dumps(row["settings"], sort_keys=True) for row in old}
    with tempfile.TemporaryDirectory() as folder:
        sessions = Sessions(options, Path(folder))
        with closing(sessions.living()) as asked:
            configs = [
                config
                for config in settings(space, asked, options.only, options.values)
                if json.dumps(config.as_dict(), sort_keys=True) not in done
            ]
        living, first, made, deadly = as_options(sessions, configs, space)
        try:
            rows, waiting, works = list(old), [], []
            for config, why in deadly.items():
                rows.append({"settings": config.as_dict(), "verdict": "option fails", "why": why})
            for config, result in made.items():
                if isinstance(result, Compiled):
                    works.append((config, result))
                else:
                    rows.append({"settings": config.as_dict(), "verdict": "option fails", "why": result.message})
            together = _ALIVE * options.processes
            for begin in range(0, len(works), together):
                with ThreadPoolExecutor(options.processes) as pool:
                    few = works[begin : begin + together]
                    found = pool.map(lambda work: late_or(began, options, compiled, sessions, work, space), few)
                for (config, _), each in zip(few, found, strict=True):
                    if each is None:
                        waiting.append(config.as_dict())
                        continue
                    row, fresh = each
                    rows.append(row if fresh is None else timed(row, living, config.key, fresh, options))
                    print(f"{config}: {row['verdict']}{', apart' if rows[-1].get('apart') else ''}", flush=True)
        finally:
            living.close()
    inert = [r["settings"] for r in rows if isinstance(first, Compiled) and r.get("option_code") == first.code]
    result = {
        "workload": str(options.workload.name),
        "spaces": options.space,
        "device": sessions.loaded.device_kind,
        "versions": sessions.loaded.versions,
        "seconds": time.monotonic() - began,
        "settings": rows,
        "same_code_as_the_default": inert,
        "not_reached": waiting,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    verdicts = [row["verdict"] for row in rows]
    print({verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}, f"{len(waiting)} not reached")


if __name__ == "__main__":
    main()
