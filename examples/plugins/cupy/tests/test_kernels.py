"""Each kernel file compiles alone, with its defaults, for the oldest and the newest architecture that NVRTC knows.

Needs CuPy, but no device.
"""

from __future__ import annotations

import pytest

from polyhal.backends.common.codegen.templating import SourceFolder

PACKAGE = "polyhal_cupy.kernels"
FILES = [name for name in SourceFolder(PACKAGE).names() if name.endswith(".cu")]


@pytest.mark.parametrize("name", FILES)
def test_compiles_alone(name: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda", reason="CuPy is not installed").nvrtc
    from polyhal_cupy.program import OPTIONS, compiled

    text = SourceFolder(PACKAGE).assemble(name, {})
    known = nvrtc.getSupportedArchs()
    for architecture in (min(known), max(known)):
        assert compiled(name, text, (f"-arch=compute_{architecture}", *OPTIONS), False, "no device")
