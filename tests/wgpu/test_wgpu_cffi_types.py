"""The types of wgpu's header that are parsed at once equal the types that cffi parses one by one, and are not parsed again."""

from __future__ import annotations

from typing import Any

import pytest
from cffi import FFI

from polyhal.backends.wgpu.cffi_types import parse_types

_HEADER = "typedef struct {int a; struct {double b;} c;} WGPUOne; typedef void *WGPUTwo; typedef enum {X} WGPUThree;"


@pytest.fixture
def ffi() -> Any:
    types = FFI()
    types.cdef(_HEADER)
    return types


def test_types_equal_the_types_that_cffi_parses(ffi: Any) -> None:
    parse_types(ffi)
    for name in ("WGPUOne", "WGPUTwo", "WGPUThree"):
        assert ffi.typeof(f"{name} *") is ffi.typeof(f" {name} *"), "a text with a blank is not in the cache"
    assert ffi.new("WGPUOne *", {"a": 3}).a == 3


def test_no_type_is_parsed_twice(ffi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parse_types(ffi)
    monkeypatch.delattr(ffi, "_parser")
    parse_types(ffi)
    assert ffi.new("WGPUTwo *")[0] == ffi.NULL


def test_another_library_parses_its_types_itself(ffi: Any) -> None:
    parse_types(None)
    monkeyed = {k: v for k, v in vars(ffi).items() if k != "_parsed_types"}
    other = FFI.__new__(FFI)
    vars(other).update(monkeyed)
    parse_types(other)
    assert ffi.typeof("WGPUOne *").item.kind == "struct"
