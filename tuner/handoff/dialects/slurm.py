"""Lines for a Slurm job script: the shell's, and what makes ``srun`` hand them on.

``srun`` gives its tasks the job script's environment unless SLURM_EXPORT_ENV says otherwise, which
``sbatch --export=NONE`` (or a list) sets. ``--export=NAME=value`` itself would end a value at its first comma.
"""

from __future__ import annotations

from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.shell import beside, free, sourced
from tuner.handoff.dialects.text import head

__all__ = ["SLURM"]

_EXPORT_ALL = """\
# sbatch --export=NONE, or a list there, would keep srun from handing these on to its tasks.
export SLURM_EXPORT_ENV=ALL
"""


def _write(content: Content, file: str) -> str:
    names = ",".join(content.set)
    images = f": add srun --container-env={names}" if names else ""
    about = (
        *head(content),
        f"Load: . ./{file} in the job script, before srun",
        "Not through sbatch --export=NAME=value, which ends a value at its first comma",
        f"In containers (pyxis, enroot) a variable that the image sets stays as it is there{images}",
    )
    return sourced(free(content), about=about, trailer=_EXPORT_ALL + beside(content))


SLURM = Dialect(name="slurm", consumer="a Slurm job script", file="best.slurm.sh", write=_write, unsets=True)
