"""Each kernel file compiles with its defaults, for the plug-in's oldest supported architecture and NVRTC's newest.

Requires CuPy, but no device.
"""

from __future__ import annotations

import pytest

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.common.launching.kernel_signature import KernelSignatures

OLDEST = 75
"""Compute capability 7.5, the minimum in README.md."""
PACKAGE = "polyhal_cupy.kernels"
FILES = [name for name in SourceFolder(PACKAGE).names() if name.endswith(".cu")]


@pytest.mark.parametrize("name", FILES)
def test_compiles_with_its_defaults(name: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda", reason="CuPy is not installed").nvrtc
    from polyhal_cupy.program import OPTIONS, compiled

    text = SourceFolder(PACKAGE).assemble(name, {})
    known = [a for a in nvrtc.getSupportedArchs() if a >= OLDEST]
    for architecture in (min(known), max(known)):
        assert compiled(name, text, (f"-arch=compute_{architecture}", *OPTIONS), False, "no device")


@pytest.mark.parametrize("name", FILES)
def test_signatures_are_readable(name: str) -> None:
    """Each parameter of every kernel is memory, a scalar or a struct of scalars."""
    signatures = KernelSignatures(SourceFolder(PACKAGE).read, "KERNEL")
    declared = list(signatures.kernels(name, {}))
    assert declared
    assert all(signature.parameters for signature in declared)
