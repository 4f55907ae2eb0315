"""What production gets: env-files in each consumer's dialect, sealed bundles, and the compilation cache's variables."""

from __future__ import annotations

from tuner.handoff.bundle import Bundle, latest_bundle, load_bundle
from tuner.handoff.cache import isolated, production, sealing
from tuner.handoff.contents import Best, FileDigest, Manifest, Options
from tuner.handoff.envfile import parse_raw, raw, shell
from tuner.handoff.writer import write_bundle

__all__ = [
    "Best",
    "Bundle",
    "FileDigest",
    "Manifest",
    "Options",
    "isolated",
    "latest_bundle",
    "load_bundle",
    "parse_raw",
    "production",
    "raw",
    "sealing",
    "shell",
    "write_bundle",
]
