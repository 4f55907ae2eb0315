"""Loading workloads with build() in a real worker."""

from __future__ import annotations

import pytest
from worker_driver import Worker

from tuner.protocol.failure import Failure, FailureClass

pytestmark = pytest.mark.jax

HEAD = "import functools, jax, jax.numpy as jnp\nx = jnp.ones((4, 4))\nf = jax.jit(lambda x: x * 2)\n"

REFUSED = {
    "build_raised": (
        "def build():\n    raise ValueError('no data')",
        r"build() raised ValueError: no data (build_raised.py:5)",
    ),
    "import_raised": (
        "import no_such_module\ndef build(): ...",
        "importing import_raised.py raised ModuleNotFoundError",
    ),
    "build_exits": ("def build():\n    raise SystemExit(3)", "build() raised SystemExit: 3"),
    "no_step": ("def build(): return 3, (x,)", "the step is not callable: it is an int"),
    "compiled": ("def build(): return f.lower(x).compile(), (x,)", "hand over the jitted function itself"),
    "no_args": ("def build(): return f, ()", "the step has no inputs"),
    "no_arrays": ("def build(): return f, (1.0,)", "the step has no inputs"),
    "odd_return": ("def build(): return f", "build() must return (step, args)"),
    "odd_knobs": ("KNOBS = {'n': 3}\ndef build(n=1): return f, (x,)", "KNOBS['n'] must be a list of values"),
    "untraceable": (
        "def build(): return jax.jit(lambda x: x @ jnp.ones(5)), (x,)",
        "the step can't be traced: TypeError",
    ),
    "no_output": (
        "def build(): return jax.jit(lambda x: print(x.shape)), (x,)",
        "the step returns no array: XLA leaves",
    ),
    "hidden": (
        """
class FilterJit:
    __module__, lower, __call__ = "equinox._jit", f, f

def build(): return functools.partial(FilterJit()), (x,)
""",
        "the step is a FilterJit of equinox, which hides what it jits",
    ),
    "mapped": (
        "def build(): return jax.pmap(lambda x: x), (x,)",
        "the step is a function of jax, which hides what it jits",
    ),
    "deleted": ("x.delete()\ndef build(): return f, (x,)", "args[0] was donated to an earlier call"),
    "bad_carry": ("def build(): return {'step': f, 'args': (x,), 'carry': 2}", "carry=2"),
}

GOOD = """
import os, sys
import jax, jax.numpy as jnp
os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=true"
os.environ["NCCL_ALGO"] = "Ring"
print("argv", sys.argv[1:], "path", sys.path[0] == os.path.dirname(__file__))
import sibling
KNOBS = {"n": [4, 8], "mode": ["a"]}

def build(n=2, mode="b"):
    assert type(n) is int, n
    step = jax.jit(lambda params, batch, scale: (params, batch), donate_argnums=(1,), static_argnums=2)
    return {
        "step": step, "args": ({"w": jnp.ones((n, 2), jnp.bfloat16)}, jnp.zeros(3), "static"),
        "check": lambda reference, candidate: True, "work": 12,
    }
"""


@pytest.fixture(scope="module")
def worker(start_worker) -> Worker:
    """One worker for all refusals: a refused load leaves it waiting for another."""
    return start_worker({"JAX_COMPILATION_CACHE_DIR": ""})


@pytest.mark.parametrize("name", REFUSED)
def test_a_workload_that_cannot_be_tuned_is_refused_with_the_reason(worker: Worker, name: str) -> None:
    source, says = REFUSED[name]
    failure = worker.load(HEAD + source, name=f"{name}.py")
    assert isinstance(failure, Failure)
    assert failure.kind is FailureClass.WORKLOAD
    assert failure.phase == "load"
    assert says in failure.message


def test_knobs_that_build_does_not_take_are_named(worker: Worker) -> None:
    failure = worker.load(HEAD + "def build(n=1): return f, (x,)", name="knobs.py", knobs={"m": 1})
    assert failure.message == "--knob names m, which build() doesn't take; it takes n"


def test_a_device_that_runs_out_of_memory_in_build_is_no_workload_error(worker: Worker) -> None:
    failure = worker.load("def build(): raise RuntimeError('RESOURCE_EXHAUSTED: Out of memory')", name="oom.py")
    assert failure.kind is FailureClass.OUT_OF_MEMORY


def test_a_platform_that_is_not_there_is_named_with_what_is(worker: Worker) -> None:
    failure = worker.load(HEAD + "def build(): return f, (x,)", name="gpu.py", platform="gpu")
    assert failure.kind is FailureClass.PLATFORM
    assert "wanted platform gpu" in failure.message
    assert "found cpu devices only" in failure.message


def test_loaded_tells_what_the_session_found(start_worker) -> None:
    worker = start_worker({"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=true"})
    (worker.folder / "sibling.py").write_text("")
    loaded = worker.loaded(GOOD, argv=("--epochs", "3"), knobs={"n": "8"}, platform="cpu")
    assert (loaded.source, loaded.step_name, loaded.platform) == ("build", "<lambda>", "cpu")
    assert loaded.carried == ("args[0]['w'] <- out[0]['w']", "args[1] <- out[1]")
    assert loaded.inputs == ("args[0]['w']: bfloat16[8,2]", "args[1]: float32[3]")
    assert loaded.input_bytes == 8 * 2 * 2 + 3 * 4
    assert (loaded.has_check, loaded.work) == (True, 12.0)
    assert loaded.knobs_declared == {"n": ("4", "8"), "mode": ("a",)}
    assert loaded.versions.keys() >= {"python", "jax", "jaxlib", "numpy", "zstandard"}
    assert loaded.environ_changed == {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true", "NCCL_ALGO": "Ring"}
    assert loaded.xla_flags_after == "--xla_cpu_enable_fast_math=true"
    assert "argv ['--epochs', '3'] path True" in worker.text()
    assert worker.load(GOOD).message == "a workload is loaded already; a worker takes one"
    assert worker.close() == 0


def test_a_workload_with_relative_imports_runs_in_its_package(start_worker) -> None:
    worker = start_worker()
    package = worker.folder / "outer" / "inner"
    package.mkdir(parents=True)
    (worker.folder / "outer" / "__init__.py").write_text("print('outer first')")
    (worker.folder / "outer" / "sizes.py").write_text("N = 4")
    (package / "types.py").write_text("def double(x):\n    return x * 2")  # would hide Python's own from its folder
    source = "from ..sizes import N\nfrom . import types\n"
    built = source + HEAD.replace("(4, 4)", "(N, N)") + "def build(): return jax.jit(types.double), (x,)"
    assert worker.loaded(built, name="outer/inner/work.py").inputs == ("args[0]: float32[4,4]",)
    assert "outer first" in worker.text()
    worker.end()
    script = start_worker()
    loop = HEAD.replace("lambda x: x * 2", "double") + "for _ in range(50): x = f(x)"
    (script.folder / "pack").mkdir()
    (script.folder / "pack" / "model.py").write_text("def double(x):\n    return x * 2")
    assert script.loaded("from .model import double\n" + loop, name="pack/train.py").step_name == "double"
    script.end()


def test_a_workload_with_relative_imports_that_need_not_hold_finds_what_lies_beside_it(start_worker) -> None:
    worker = start_worker()
    (worker.folder / "proj").mkdir()
    (worker.folder / "proj" / "a.py").write_text("import b\nN = b.N")
    (worker.folder / "proj" / "b.py").write_text("N = 3")
    source = "try:\n    from .a import N\nexcept ImportError:\n    from a import N\nimport b\n" + HEAD
    build = "def build(): return f, (jnp.ones((N, b.N)),)"
    assert worker.loaded(source + build, name="proj/work.py").inputs == ("args[0]: float32[3,3]",)
    worker.end()


def test_a_workload_that_its_package_imports_is_executed_once(start_worker) -> None:
    worker = start_worker()
    (worker.folder / "pack").mkdir()
    (worker.folder / "pack" / "__init__.py").write_text("from .work import build")
    (worker.folder / "pack" / "sizes.py").write_text("N = 3")
    source = "from .sizes import N\nprint('executed')\n" + HEAD
    failure = worker.load(source + "def build(): return 3, (x,)", name="pack/work.py")
    assert "the step is not callable" in failure.message
    assert worker.text().count("executed") == 1
    built = source + "def build(): return f, (jnp.ones(N),)"
    loaded = worker.loaded(built, name="pack/work.py")
    assert loaded.inputs == ("args[0]: float32[3]",), "a later load executes the file that is there then"
    worker.end()


def test_a_step_of_the_users_own_class_may_have_a_lower(start_worker) -> None:
    worker = start_worker()
    own = "class Step:\n    lower = -1.0\n\n    def __call__(self, x):\n        return x.clip(self.lower)\n\n"
    assert worker.loaded(HEAD + own + "def build(): return Step(), (x,)").inputs == ("args[0]: float32[4,4]",)
    worker.end()


def test_a_workload_finds_its_folder_by_the_folders_name(start_worker) -> None:
    worker = start_worker()
    (worker.folder / "examples_here").mkdir()
    (worker.folder / "examples_here" / "datasets.py").write_text("N = 3")
    (worker.folder / "examples_here" / "beside.py").write_text("M = 5")
    source = HEAD + "from examples_here import datasets\nimport beside\n"
    build = "def build(): return f, (jnp.ones((datasets.N, beside.M)),)"
    assert worker.loaded(source + build, name="examples_here/work.py").inputs == ("args[0]: float32[3,5]",)
    worker.end()
