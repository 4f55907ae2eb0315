"""Names of jax_default_matmul_precision that lower to one program are offered once; every name is accounted for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tuner.knobs import UNSET, load_spaces

# What no value offers, and is not to: more accurate than the default, or too coarse for any check (see the space).
LEFT_OUT = frozenset(
    {"highest", "float32", "F32_F32_F32", "F64_F64_F64", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9", "TF32_TF32_F32_X3"}
    | {"BF16_BF16_BF16", "F16_F16_F16"}
)

# The name → what it lowers to, on the GPU's platform without a GPU. Runs in a child: pytest must not import jax.
CHILD = """
import json, re, jax, jax.numpy as jnp
from jax import export
try:
    jax.config.update("jax_default_matmul_precision", "no such name")
except ValueError as error:
    names = re.findall(r"'(\\w+)'", str(error).partition("]")[0])
found = {}
for name in ["", *(n for n in names if not n.startswith("ANY_F8"))]:  # those need inputs of eight bits
    with jax.default_matmul_precision(name or None):
        step = jax.jit(lambda x: x @ x)
        found[name] = export.export(step, platforms=["cuda"])(jax.ShapeDtypeStruct((4, 4), jnp.float32)).mlir_module()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    """The program of each name that the installed jax takes; "" is no name."""
    env = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.jax
def test_each_offered_name_is_a_program_of_its_own_and_none_is_missing(programs: dict[str, str]) -> None:
    knob = load_spaces(["precision"]).knob("jax_default_matmul_precision")
    offered = {value: programs[value] for value in knob.values if value != UNSET}
    assert len({*offered.values(), programs[""]}) == len(offered) + 1
    missing = {name for name, program in programs.items() if program not in {*offered.values(), programs[""]}}
    assert missing == LEFT_OUT & programs.keys()
