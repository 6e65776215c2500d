"""The cache of recorded and compiled programs, against a plain list of uses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polyhal.hal.compile.capture.lru_cache import LRUCache


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 6))))
def test_the_last_used_values_are_kept(size: int, calls: list[tuple[bool, int]]) -> None:
    cache: LRUCache[int, str] = LRUCache(size)
    kept: list[int] = []
    for adds, key in calls:
        if adds:
            assert cache.add(key, str(key)) == str(key)
        else:
            assert cache.get(key) == (str(key) if key in kept else None)
        if adds or key in kept:
            kept = [*(k for k in kept if k != key), key][-size:]
        assert list(cache) == kept
        assert list(cache.values()) == [str(k) for k in kept]
        assert cache.is_full == (len(kept) == size)
    cache.clear()
    assert not list(cache.values())
