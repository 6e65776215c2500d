"""Tunables: choices, storage, and a search that rejects wrong candidates and keeps only faster ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.kernels import tuning
from polyhal.hal.core.kernels.tuning import Family, TunedChoice, Tuning, magnitude, size_class
from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, UnsupportedOpError
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch
from polyhal.hal.testing.tuning.comparison import significant_speedup
from polyhal.hal.testing.tuning.search import CandidateTrial, RejectedCandidate, TuningResult, search
from polyhal.hal.testing.tuning.workloads import Workload, workloads

INFO = DeviceInfo("made-up", "Card", DeviceType.GPU, 1 << 30, "1.0", "fake/card")


@dataclass(frozen=True)
class Shape:
    group: int
    vector: int


FAMILY = Family[Shape]("rows", {"group": (32, 64, 128), "vector": (1, 4)}, lambda most, c: c.group <= most)
DEFAULT = Shape(64, 1)
KEY = ("rows", "small")


def test_measured_choices_take_precedence_over_the_profile_and_the_default() -> None:
    assert Tuning(256, {}, {}).choose(FAMILY, "small", DEFAULT) == DEFAULT
    profile = {"rows": {"vector": 4}}
    assert Tuning(256, profile, {}).choose(FAMILY, "small", DEFAULT) == Shape(64, 4)
    found = Tuning(256, profile, {KEY: {"group": 128}})
    assert found.choose(FAMILY, "small", DEFAULT) == Shape(128, 4)
    assert found.choose(FAMILY, "large", DEFAULT) == Shape(64, 4)
    found.trial = {KEY: {"group": 32}}
    assert found.choose(FAMILY, "small", DEFAULT) == Shape(32, 4)


def test_a_choice_that_the_device_or_the_kernel_does_not_support_is_ignored() -> None:
    for values in ({"group": 128}, {"lanes": 3}):
        assert Tuning(64, {}, {KEY: values}).choose(FAMILY, "small", DEFAULT) == DEFAULT
        assert Tuning(64, {"rows": values}, {}).choose(FAMILY, "small", DEFAULT) == DEFAULT


def test_measured_values_that_no_search_tries_are_ignored() -> None:
    for values in ({"group": 0}, {"group": -32}, {"group": 33}, {"vector": 1 << 40}):
        assert Tuning(1 << 50, {}, {KEY: values}).choose(FAMILY, "small", DEFAULT) == DEFAULT


def test_candidates_are_allowed_distinct_and_start_near_the_default() -> None:
    found = list(FAMILY.candidates(64, DEFAULT))
    assert found == [{"vector": 4}, {"group": 32}, {"group": 32, "vector": 4}]
    assert len(list(FAMILY.candidates(256, Shape(256, 2)))) == 4 * 3 - 1  # the default is a value of its own


def test_shape_classes() -> None:
    assert size_class(1, 4, 5, 1024, 1025) == "1x4x16x1024x4096"
    assert [magnitude(n) for n in (1, 2**16, 2**22)] == ["small", "medium", "large"]


def choice(shape: str = "small", **values: int) -> TunedChoice:
    return TunedChoice("rows", shape, values, 1.5, "2026-01-02")


def test_the_file_of_a_device_is_read_back_but_not_for_another_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    known = {c.key: c for c in (choice(group=32), choice("large"))}
    tuning.write(tuning.path(INFO), INFO, known)
    assert tuning.load(INFO) == known
    newer = replace(INFO, driver="2.0")
    assert tuning.load(newer) == {}
    with pytest.raises(IncompatibleFileError, match=r"driver: '1\.0' there, '2\.0' here"):
        tuning.read(tuning.path(INFO), newer)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: "{",
        lambda d: json.dumps({**d, "choices": 3}),
        lambda d: json.dumps({**d, "choices": [{**d["choices"][0], "values": {"group": "32"}}]}),
        lambda d: json.dumps({**d, "choices": [{"family": "rows"}]}),
    ],
)
def test_a_damaged_file_counts_as_absent_and_its_reader_raises(
    damage: Callable[[dict[str, Any]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    path = tuning.path(INFO)
    tuning.write(path, INFO, {KEY: choice(group=32)})
    path.write_text(damage(json.loads(path.read_text())))
    assert tuning.load(INFO) == {}
    with pytest.raises(CorruptFileError):
        tuning.read(path, INFO)
    tuning.write(path, INFO, {KEY: choice(group=32)})
    assert tuning.load(INFO) != {}


@dataclass(frozen=True)
class Speed:
    kind: int


class Tuned(NumpyBackend):
    """A backend whose addition depends on a tunable: 0 is slow, 1 fast, 2 wrong, 3 fails, 4 is as slow as 0."""

    FAMILY = Family[Speed]("adding", {"kind": (0, 1, 2, 3, 4)})

    def __init__(self, kinds: Mapping[str, Any] | None = None) -> None:
        super().__init__(replace(INFO, backend="numpy"))
        family = self.FAMILY if kinds is None else Family[Speed]("adding", kinds)
        self._family = family
        self.tuning = Tuning(None, {}, {})

    def lower(self, op: str, inputs: Any, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Launch | Declined:
        if op != "add" or outputs[0].size > 2**16:
            return Declined("not this one")
        kind = self.tuning.choose(self._family, "small", Speed(0)).kind
        if kind == 3:
            raise RuntimeError("this one breaks the driver")

        def add(a: Ref, b: Ref, out: Ref) -> None:
            self.binary("add", a, b, out)
            if kind in (0, 4):
                time.sleep(1e-3)
            elif kind == 2:
                self.fill(7.0, out)

        return SimpleLaunch("add", add)


WORK = [Workload("add", ((64,), (64,)), {})]


def test_the_search_keeps_correct_and_faster_choices() -> None:
    device = Device.opened("made up", Tuned())
    events = list(search(device, 60.0, "add", work=WORK))
    refused = [e for e in events if isinstance(e, RejectedCandidate)]
    assert [e.values for e in refused] == [{"kind": 2}, {"kind": 3}]
    assert "expected" in refused[0].problem
    assert "breaks the driver" in refused[1].problem
    assert len([e for e in events if isinstance(e, CandidateTrial)]) == 4
    (result,) = [e for e in events if isinstance(e, TuningResult)]
    assert result.found.key == ("adding", "small")
    assert result.found.values == {"kind": 1}
    assert result.found.speedup > 1.03
    assert (result.tried, result.refused, result.left) == (4, 2, 0)


def test_the_search_never_keeps_choices_that_are_not_faster() -> None:
    (result,) = [
        e
        for e in search(Device.opened("made up", Tuned({"kind": (0, 4)})), 60.0, work=WORK)
        if isinstance(e, TuningResult)
    ]
    assert result.found.values == {}
    assert result.found.speedup == 1.0


def test_the_search_skips_the_given_choices_and_ends_with_its_budget() -> None:
    device = Device.opened("made up", Tuned())
    fatal = (("adding", "small"), (("kind", 3),))
    assert {"kind": 3} not in [
        e.values for e in search(device, 60.0, skip=[fatal], work=WORK) if isinstance(e, CandidateTrial)
    ]
    assert list(search(device, 60.0, done=[("adding", "small")], work=WORK)) == []
    assert list(search(device, 0.0, work=WORK)) == []


def test_the_error_for_an_unknown_family_lists_the_known_ones() -> None:
    device = Device.opened("made up", Tuned())
    with pytest.raises(ValueError, match="no kernel family of this device has 'ading' in its name; expected adding"):
        list(search(device, 60.0, "ading", work=WORK))


def test_a_speedup_that_some_rounds_contradict_is_ignored() -> None:
    slow, fast = [2.0] * 15, [1.0] * 15
    assert significant_speedup(slow, fast) == 2.0
    assert significant_speedup(fast, slow) == 0.5
    assert significant_speedup([2.0] * 13 + [0.5] * 2, fast) == 2.0
    assert significant_speedup([2.0] * 12 + [0.5] * 3, fast) == 1.0
    assert significant_speedup(fast, fast) == 1.0


def test_a_backend_without_tunables_raises() -> None:
    with pytest.raises(UnsupportedOpError, match="no tunables"):
        list(search(Device("numpy"), 1.0))


@pytest.mark.parametrize("kind", [DeviceType.CPU, DeviceType.GPU])
def test_workloads_are_valid_calls_of_their_ops(kind: DeviceType) -> None:
    for workload in workloads(kind):
        small = replace(workload, shapes=tuple(s and tuple(min(n, 64) for n in s) for s in workload.shapes))
        assert small.call().outputs()
        assert all(v is None or v.dtype == np.dtype(workload.dtype.numpy) for v in small.call().values)
