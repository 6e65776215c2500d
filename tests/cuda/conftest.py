"""CUDA backends on emulated devices, which are lazy: the device works when the host waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated_backend import Emulation
from emulated_processor import Processor, processor


@pytest.fixture(scope="session")
def cores() -> Processor:
    """Return the processor that runs the kernels of emulated devices."""
    found = processor()
    if found is None:
        pytest.skip("no OpenCL runtime for the processor")
    return found


@pytest.fixture(scope="session")
def programs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs that the tests of a process share."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(autouse=True)
def _own_cache(programs_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep emulated programs out of the user's cache."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(programs_folder))


@pytest.fixture
def emulate(cores: Processor) -> Iterator[Any]:
    """Return a function that opens all devices of a new emulated driver. Afterwards no work may have gone wrong."""
    made: list[Emulation] = []

    def opened(devices: int = 1, **options: Any) -> Emulation:
        made.append(Emulation(cores, devices, **{"lazy": True, **options}))
        return made[-1]

    yield opened
    for emulation in made:
        emulation.library.finish()
        assert emulation.library.violations == emulation.expected_violations


@pytest.fixture
def emulation(emulate: Any) -> Emulation:
    """One emulated device."""
    return emulate()  # type: ignore[no-any-return]
