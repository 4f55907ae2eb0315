"""The Python front: tune from a program or a notebook, and read runs back as data frames, plots and reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import UsageError

if TYPE_CHECKING:
    import optuna
    import pandas as pd

    from tuner.measure.types import Estimate, Verdict
    from tuner.report.listener import Listener
    from tuner.report.view import RunView
    from tuner.store.events import AnyEvent
    from tuner.store.folder import RunFolder

__all__ = ["RunResult", "load_run", "tune"]

_STORE = ".tuner"


class RunResult:
    """One run, finished or not, computed from its event log. Made by `tune` and `load_run`.

    A notebook shows it as verdict, what to do and the settings kept.
    """

    def __init__(self, events: Sequence[AnyEvent], *, log: Path, folder: RunFolder | None, store: str) -> None:
        self.events = events
        self.log = log
        self._folder = folder
        self._store = store

    @cached_property
    def view(self) -> RunView:
        """Everything that a report says of the run, typed."""
        from tuner.report.view import RunView

        return RunView.of(self.events)

    @property
    def id(self) -> str:
        return self.view.run

    @property
    def path(self) -> Path:
        """The run's folder; of a log that lies by itself, the folder that it lies in."""
        return self.log.parent

    @property
    def verdict(self) -> Verdict | None:
        """faster, same, unclear or unstable; None before there is one."""
        return self.view.confirm.verdict if self.view.confirm else None

    @property
    def speedup(self) -> Estimate | None:
        """Gain (log scale; ``.speedup`` is the ratio) of the best finalist over the defaults in fresh processes, with
        its interval; None if nothing was confirmed."""
        return self.view.confirm.estimate if self.view.confirm else None

    @property
    def settings(self) -> dict[str, str]:
        """What to set, name → value as emitted; {} means the defaults."""
        return self.view.confirm.chosen.as_dict() if self.view.confirm else {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the sealed files set; {} if nothing was sealed."""
        return dict(self.view.seal.environment) if self.view.seal else {}

    @property
    def effects(self) -> dict[str, Estimate]:
        """By name, the gain that is lost when only this kept setting is left out."""
        return {name: effect.estimate for name, effect in self.view.effects.items()}

    @property
    def files(self) -> dict[str, str]:
        """The run's files that are there, by name: env, shell, json, events, table, report, summary, bundle."""
        from tuner.report.written import run_files

        return run_files(self._folder) if self._folder else {"events": str(self.log)}

    def trials_dataframe(self) -> pd.DataFrame:
        """One row a trial, in the order finished; columns as in ``results.csv`` (`tuner.report.table`)."""
        from tuner.report.table import results_frame

        return results_frame(self.events)

    def samples_dataframe(self) -> pd.DataFrame:
        """One row a timed block, in the order timed; times in seconds, ratios hold within one `seq` only."""
        from tuner.report.table import samples_frame

        return samples_frame(self.events)

    def study(self) -> optuna.Study:
        """The run's trials as an Optuna study, from the store's database, for ``optuna.importance`` and
        ``optuna.visualization``. Values are log ratios to the default: smaller is faster.

        Raises StoreError if the database has none of this run, UsageError if the log lies in no store.
        """
        from tuner.store.events import RunStarted
        from tuner.store.folder import open_store
        from tuner.store.study import load_study

        first = self.events[0]
        if self._folder is None or self._folder.path.parent.name != "runs" or not isinstance(first, RunStarted):
            raise UsageError("this run lies in no store", where=str(self.log), next="load it from a store's runs/")
        # A store that is a database has no file beside its runs.
        where = self._store if "://" in self._store else self._folder.path.absolute().parents[1]
        return load_study(open_store(where).url, first)

    def document(self) -> dict[str, Any]:
        """What ``tune run --json`` prints."""
        from tuner.report.document import document

        return document(self.view, self.files)

    def _linked(self) -> dict[str, str]:
        from tuner.report.written import linked_files

        return linked_files(self._folder) if self._folder else self.files

    def report_html(self) -> str:
        """The whole report as one self-contained HTML page, with absolute links."""
        from tuner.report.html import render_html
        from tuner.report.paper import run_paper

        return render_html(run_paper(self.events, files=self._linked()))

    def report_markdown(self) -> str:
        """The same in Markdown, without figures."""
        from tuner.report.markdown import render_markdown
        from tuner.report.paper import run_paper

        return render_markdown(run_paper(self.events, files=self._linked()))

    def __repr__(self) -> str:
        from tuner.report.headline import headline

        return f"<RunResult {self.id}: {headline(self.view)}>"

    def _repr_html_(self) -> str:
        from tuner.report.html import render_fragment
        from tuner.report.paper import run_paper

        return render_fragment(run_paper(self.events, files=self._linked()), sections=("do", "settings"))


def load_run(run: str | os.PathLike[str], *, store: str | os.PathLike[str] = _STORE) -> RunResult:
    """A run by its folder, its event log (packed with gzip or not), its id in `store`, or how only that one begins.

    Raises UsageError if there is none or several are meant, StoreError for a broken log.
    """
    from tuner.store.reading import read_run

    found = read_run(os.fspath(run), store=os.fspath(store))
    return RunResult(found.events, log=found.path, folder=found.folder, store=os.fspath(store))


def tune(
    workload: str | os.PathLike[str],
    *,
    space: str | Iterable[str] = (),
    budget: str | float = "10m",
    trials: int | None = None,
    min_gain: str | float = "0.5%",
    objective: str = "mean",
    max_memory: str | float | None = None,
    first: str | Iterable[str] = (),
    launch: str | None = None,
    seal_with: str | None = None,
    seal_time: str | float = "2m",
    pgle: str = "cache",
    install_path: str | os.PathLike[str] | None = None,
    knob: Mapping[str, str] | None = None,
    platform: str | None = None,
    allow: str | Iterable[str] = (),
    override: str | Iterable[str] = (),
    python: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] = _STORE,
    seed: int = 0,
    argv: Iterable[str] = (),
    fresh: bool = False,
    listener: Listener | None = None,
) -> RunResult:
    """Tune `workload` as ``tune run`` does; the same call goes on with an interrupted run.

    Options mean what the command's do and may be written the same ("10m", "0.5%", "90%"), or as numbers: `budget` in
    seconds, `min_gain` as a share, `max_memory` in bytes (int) or as a share (float). Settings files and ``TUNER_*``
    variables are not read. `listener` is told of progress; without one nothing is shown.

    Raises UsageError for an option that can't be, and the TunerErrors that a run can end with; Interrupted on Ctrl-C.
    """
    from tuner.cli.settings import SETTINGS, converted
    from tuner.pipeline.options import RunOptions
    from tuner.pipeline.run import tune as run_pipeline

    given: dict[str, Any] = {
        "space": _several(space),
        "budget": budget,
        "trials": trials,
        "min-gain": min_gain,
        "objective": objective,
        "max-memory": max_memory,
        "first": _several(first),
        "launch": launch,
        "seal-with": seal_with,
        "seal-time": seal_time,
        "pgle": pgle,
        "install-path": None if install_path is None else os.fspath(install_path),
        "knob": [f"{name}={value}" for name, value in (knob or {}).items()],
        "platform": platform,
        "allow": _several(allow),
        "override": _several(override),
        "python": None if python is None else os.fspath(python),
        "store": os.fspath(store),
        "seed": seed,
    }
    value = {name: converted(SETTINGS[name], given[name]) for name in given}
    arguments = tuple(argv)
    options = RunOptions(
        workload=Path(workload),
        argv=arguments,
        spaces=value["space"],
        budget_s=value["budget"],
        trials=value["trials"],
        min_gain=value["min-gain"],
        objective=value["objective"],
        max_memory=value["max-memory"],
        first=value["first"],
        launch=value["launch"] or "",
        seal_with=value["seal-with"] or "",
        seal_s=value["seal-time"],
        pgle=value["pgle"],
        install_path=value["install-path"] or "",
        hold=value["knob"],
        platform=value["platform"],
        allow=frozenset(value["allow"]),
        override=value["override"],
        python=value["python"],
        store=value["store"],
        fresh=fresh,
        seed=value["seed"],
        command=_command(workload, given, arguments),
    )
    outcome = run_pipeline(options, listener=listener)
    return load_run(outcome.folder, store=options.store)


def _several(texts: str | Iterable[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _command(workload: str | os.PathLike[str], given: Mapping[str, Any], argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command line that means the same: what people repeat the run with."""
    from tuner.cli.settings import SETTINGS

    words = ["tune", os.fspath(workload)]
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None and str(one) != SETTINGS[name].default:
                words += [f"--{name}", f"{one:%}" if name == "max-memory" and isinstance(one, float) else str(one)]
    return (*words, *(("--", *argv) if argv else ()))
