"""A Kubernetes ConfigMap for ``envFrom:``, where, unlike in ``env:``, ``$(NAME)`` in a value stays as it is.

Values are YAML's double-quoted scalars, which JSON's are too except for the characters that YAML wants escaped.
"""

from __future__ import annotations

import json
import re

from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.text import cache_lines, comments, head, joined, refuse, unset_line, utf8

__all__ = ["K8S"]

_LONGEST_NAME = 63
# Not printable in YAML, a line break to it, or a byte-order mark.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _write(content: Content, file: str) -> str:
    utf8(content.set, "Kubernetes")
    name = _object_name(content.name)
    about = (
        *head(content),
        f"Load: kubectl apply -f {file}, and in the container: envFrom: [{{configMapRef: {{name: {name}}}}}]",
        "What stands under the container's env: counts more. Pods that run keep what they started with",
        *unset_line(content),
        *cache_lines(content, "mount that folder"),
    )
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", f"  name: {name}"]
    lines += ["data:" if content.set else "data: {}"]
    for variable, value in content.set.items():
        if "\0" in value:
            raise refuse(variable, "the value holds NUL, which no variable can carry", next="take the NUL out")
        lines.append(f"  {_scalar(variable)}: {_scalar(value)}")
    return joined([*comments(about), *lines])


def _scalar(value: str) -> str:
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(value, ensure_ascii=False))


def _object_name(name: str) -> str:
    """A DNS label made of the run's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"tune-{name.lower()}")
    return plain[:_LONGEST_NAME].strip("-")


K8S = Dialect(name="k8s", consumer="a Kubernetes ConfigMap", file="best.configmap.yaml", write=_write)
