"""What a bundle emits, for the dialects: its head, its environment, and where its cache is."""

from __future__ import annotations

from pathlib import Path

from tuner.handoff.cache import CACHE_DIR
from tuner.handoff.contents import Best, Manifest
from tuner.handoff.dialects.content import Content
from tuner.handoff.header import header
from tuner.handoff.merging import merge_flags
from tuner.knobs import EXPECT_PGLE

__all__ = ["XLA_FLAGS", "content_of"]

XLA_FLAGS = "XLA_FLAGS"


def content_of(
    manifest: Manifest, best: Best, *, cache: Path | None, cache_dir: str | None = None, flags: str | None = None
) -> Content:
    """The content of a bundle's files.

    `cache`: where the sealed cache was written, None without one. `cache_dir`: where it will be when the program runs;
    it is then set as a variable. `flags`: an XLA_FLAGS text to merge the measured one with. Raises FlagsError if XLA
    would misread that.
    """
    env: dict[str, str | None] = {**dict.fromkeys(manifest.unset), **manifest.env}
    about = [*header(manifest, best)]
    if cache is not None and cache_dir is not None:
        env[CACHE_DIR] = cache_dir
    if flags is not None:
        merged = merge_flags(flags, manifest.env.get(XLA_FLAGS, ""))
        if merged.text or XLA_FLAGS in manifest.env:
            env[XLA_FLAGS] = merged.text
        if merged.said:
            about.append(f"Merged with the XLA_FLAGS of where this was exported: {merged.said}")
        if merged.changed and manifest.cache:
            about.append("XLA_FLAGS is not the text that was sealed: the step will not be found in the sealed cache")
    return Content(
        about=tuple(about),
        env=env,
        name=manifest.run,
        best=best,
        cache=None if cache_dir is not None else cache,
        bound=(EXPECT_PGLE,) if EXPECT_PGLE in manifest.env else (),
        merged=flags is not None,
    )
