"""What production gets: env-files in each consumer's dialect, sealed bundles, and the compilation cache's variables."""

from __future__ import annotations

from tuner.handoff.bundle import Bundle, latest_bundle, load_bundle, next_number
from tuner.handoff.cache import gathered, isolated, loading, production, sealing
from tuner.handoff.contents import Best, Control, FileDigest, Manifest, Options
from tuner.handoff.dialects import DIALECTS, Content, Dialect
from tuner.handoff.emission import content_of
from tuner.handoff.merging import MergedFlags, merge_flags
from tuner.handoff.writer import write_bundle

__all__ = [
    "DIALECTS",
    "Best",
    "Bundle",
    "Content",
    "Control",
    "Dialect",
    "FileDigest",
    "Manifest",
    "MergedFlags",
    "Options",
    "content_of",
    "gathered",
    "isolated",
    "latest_bundle",
    "load_bundle",
    "loading",
    "merge_flags",
    "next_number",
    "production",
    "sealing",
    "write_bundle",
]
