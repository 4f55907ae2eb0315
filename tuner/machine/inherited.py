"""The environment variables this process was started with: the one place of library code that reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["inherited", "relevant"]

_PREFIXES = (
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "GOMP_",
    "JAX_",
    "KMP_",
    "LIBTPU",
    "MALLOC_",
    "MKL_",
    "NCCL_",
    "NVIDIA_TF32_",
    "NVSHMEM_",
    "OMP_",
    "OPENBLAS",
    "TF_CPP_",
    "TF_XLA_",
    "TF_CUDNN_",
    "TF_GPU_",
    "TORCH_SYMM_MEM_",
    "TPU_",
    "XLA_",
)
_NAMES = frozenset(
    {
        "HIP_VISIBLE_DEVICES",
        "LD_LIBRARY_PATH",  # another CUDA library,
        "LD_PRELOAD",  # or another allocator, changes speed
        "ROCR_VISIBLE_DEVICES",
    }
)
_SECRET_WORDS = frozenset(
    {"APIKEY", "AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSWD", "PASSWORD", "SECRET", "TOKEN"}
)


def inherited() -> dict[str, str]:
    """A copy of the whole environment of this process."""
    return dict(os.environ)


def relevant(env: Mapping[str, str]) -> dict[str, str]:
    """Those of `env` that can change how a JAX program runs, sorted; never one whose name speaks of a secret."""
    return {
        name: env[name]
        for name in sorted(env)
        if (name in _NAMES or name.startswith(_PREFIXES)) and _SECRET_WORDS.isdisjoint(name.upper().split("_"))
    }
