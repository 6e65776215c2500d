"""JSON files have one record per line, and read back as the same value."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhal.hal.core.settings.json_store import text_of

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
VALUES = st.recursive(
    SCALARS, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3), max_leaves=12
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_values_are_read_back(value: dict[str, object]) -> None:
    assert json.loads(text_of(value)) == value


def test_items_of_lists_and_flat_objects_have_a_line_each() -> None:
    rows = [{"name": "a", "seconds": {"x": [1.0, 2.0]}}, {"name": "b", "seconds": {}}]
    assert text_of({"schema": 1, "device": {"name": "é"}, "rows": rows, "cells": {"abs": {"int8": "C"}, "x": []}}) == (
        "{\n"
        ' "schema": 1,\n'
        ' "device": {"name": "é"},\n'
        ' "rows": [\n'
        '  {"name": "a", "seconds": {"x": [1.0, 2.0]}},\n'
        '  {"name": "b", "seconds": {}}\n'
        " ],\n"
        ' "cells": {\n'
        '  "abs": {"int8": "C"},\n'
        '  "x": []\n'
        " }\n"
        "}\n"
    )


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        text_of({"x": math.nan})
