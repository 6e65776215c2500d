"""All formats by name."""

from __future__ import annotations

from benchmarks.reliability.fuzzing import caches, checkpoints, foreign, language_models, texts
from benchmarks.reliability.fuzzing.case import FileFormat
from benchmarks.reliability.fuzzing.registry_names import NAMES


def formats() -> dict[str, FileFormat]:
    """Return all formats; the folder of caches is the one that POLYHAL_CACHE_DIR names now."""
    found = [
        *checkpoints.formats(),
        *foreign.formats(),
        *caches.formats(),
        *texts.formats(),
        *language_models.formats(),
    ]
    assert tuple(f.name for f in found) == NAMES
    return {f.name: f for f in found}
