"""The C types of wgpu-native, parsed at once.

cffi parses a type name at its first use, and each time also the 400 names of the header: 20 ms each, and opening a
device uses 20 types. As parameters of one function they are all parsed at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def parse_types(ffi: Any) -> None:
    """Fill cffi's type cache with a pointer to each type of wgpu's header.

    The cache is an implementation detail of cffi. If it moves, cffi parses types one by one as before.
    """
    with suppress(AttributeError):
        names = [f"{name} *" for name in ffi.list_types()[0] if name.startswith("WGPU")]
        if not ffi._parsed_types.keys() >= set(names):
            pointers = ffi.typeof(f"void (*)({', '.join(names)})").args
            ffi._parsed_types.update((name, (p, False)) for name, p in zip(names, pointers, strict=True))
