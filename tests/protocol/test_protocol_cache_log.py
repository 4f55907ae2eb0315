"""What jax's debug messages tell of its persistent cache."""

from __future__ import annotations

from tuner.protocol.cache_log import LookUps

FIELD = "DEBUG:2026-01-01 10:00:00,123:jax._src.cache_key:153: get_cache_key hash of serialized "
LOOK = "DEBUG:2026-01-01 10:00:00,456:jax._src.compiler:700: "


def test_a_hit_and_a_miss_come_with_the_parts_of_their_keys() -> None:
    reader = LookUps()
    assert reader.read("training step 1") is None
    assert reader.read(f"{FIELD}computation: {'ab' * 32}") is None
    assert reader.read(f"{FIELD}XLA flags: {'12' * 32}") is None
    hit = reader.read(f"{LOOK}Persistent compilation cache hit for 'jit_step' with key 'jit_step-0f'")
    assert hit is not None
    assert (hit.module, hit.key, hit.hit) == ("jit_step", "jit_step-0f", True)
    assert hit.fields == {"computation": "ab" * 8, "XLA flags": "12" * 8}
    miss = reader.read("PERSISTENT COMPILATION CACHE MISS for 'jit_fn' with key 'jit_fn-1'")
    assert miss is not None
    assert (miss.hit, miss.fields) == (False, {})
