"""The C types of wgpu-native, parsed in one go.

cffi parses a type that a string names when it is first used, and each time all 400 names of the header with it: 20 ms each,
and opening a device uses 20 types. As parameters of one function they are parsed together.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def parse_types(ffi: Any) -> None:
    """Tell wgpu's cffi library what a pointer to each type of its header is.

    That cffi keeps parsed types by their text is its own matter: if it keeps them elsewhere, it parses them as before.
    """
    with suppress(AttributeError):
        names = [f"{name} *" for name in ffi.list_types()[0] if name.startswith("WGPU")]
        if not ffi._parsed_types.keys() >= set(names):
            pointers = ffi.typeof(f"void (*)({', '.join(names)})").args
            ffi._parsed_types.update((name, (p, False)) for name, p in zip(names, pointers, strict=True))
