"""Config: an assignment to knobs in canonical form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from tuner.knobs.knob import UNSET

__all__ = ["DEFAULT", "Config"]


class Config(msgspec.Struct, frozen=True, order=True):
    """Settings other than "unset", sorted by knob name, each value the exact text that is emitted."""

    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Config:
        """The canonical config of `settings`; "unset" entries fall away."""
        return cls(tuple(sorted((name, value) for name, value in settings.items() if value != UNSET)))

    @property
    def key(self) -> str:
        """16 hex digits that name this config."""
        text = msgspec.json.encode(self.settings)
        return hashlib.sha256(text).hexdigest()[:16]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.settings)

    def as_dict(self) -> dict[str, str]:
        return dict(self.settings)

    def get(self, name: str) -> str:
        """The value of `name`, "unset" if it has none."""
        return self.as_dict().get(name, UNSET)

    def set(self, name: str, value: str) -> Config:
        return Config.of({**self.as_dict(), name: value})

    def drop(self, *names: str) -> Config:
        return Config(tuple(s for s in self.settings if s[0] not in names))

    def join(self, other: Config) -> Config:
        """Both configs' settings; `other` wins where both set a knob."""
        return Config.of({**self.as_dict(), **other.as_dict()})

    def __len__(self) -> int:
        return len(self.settings)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        """``name=value`` pairs for people; "default" if nothing is set."""
        return " ".join(f"{n}={v if v else '<empty>'}" for n, v in self.settings) or "default"


DEFAULT = Config()
