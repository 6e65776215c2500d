"""Devices for tests of groups: different devices of this machine, and up to eight simulated ones."""

from __future__ import annotations

from hypothesis import strategies as st

from polyhal.hal.system.discovery.registry import registry

MIXED = ["numpy", "numpy:no_f64", "numpy:contiguous_only", "sim:h200*2:0", "sim:h200*2:1"]
OPENCL = [c.name for c in registry().probe("opencl")[:2]]
MIXED += OPENCL if len(OPENCL) > 1 else []
MIXED += ["wgpu"] if registry().probe("wgpu") else []


def groups(most: int = 8) -> st.SearchStrategy[list[str]]:
    """Draw names of one to `most` different devices, in any order."""
    return st.lists(st.sampled_from(MIXED), min_size=1, max_size=most, unique=True)
