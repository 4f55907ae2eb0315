"""Every language in which the settings can be handed to production, one module a consumer, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.handoff.dialects.compose import COMPOSE
from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.docker import DOCKER, parse_raw, raw
from tuner.handoff.dialects.documents import FLAGS_FILE, JSON, PYTHON
from tuner.handoff.dialects.k8s import K8S
from tuner.handoff.dialects.shell import SHELL, sourced
from tuner.handoff.dialects.slurm import SLURM
from tuner.handoff.dialects.systemd import SYSTEMD

__all__ = ["DIALECTS", "Content", "Dialect", "parse_raw", "raw", "sourced"]

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect for dialect in (DOCKER, SHELL, SYSTEMD, COMPOSE, K8S, SLURM, JSON, FLAGS_FILE, PYTHON)
}
