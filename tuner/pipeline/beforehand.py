"""What the tuner needs later is made ready while the first worker starts, when it has nothing else to do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module

from tuner.store.study import StudyMirror

__all__ = ["made_ready"]

# What the baseline's plan and the report import when they are called, half a second each; the study brings Optuna.
_MODULES = ("scipy.optimize", "pandas", "jinja2")
# The first worker, the process that asks the flag parser, and this; with two cores the first start took half as long
# again, and the budget is planned by how long it takes.
_CORES = 4


@contextmanager
def made_ready(study: StudyMirror, *, cores: float) -> Iterator[None]:
    """While the block runs, `study` is opened and slow modules are imported, if so many `cores` have room for it; all
    is over when the block is left, for nothing may be timed beside it. Whatever fails is tried again, and told, by
    whoever needs it."""
    if cores < _CORES:
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="tuner-beforehand") as pool:
        for module in _MODULES:
            pool.submit(import_module, module)
        pool.submit(study.open)
        yield
