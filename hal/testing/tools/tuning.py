"""The search for the best choices of kernels on one device: every candidate is checked, and the winner meets the default again.

A candidate's results are held to the same bounds as in the conformance kit. The quickest ones are then timed against the
default in turns, so that a slow spell of the machine hits both alike; a candidate that is not clearly faster is dropped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from polyhal.hal.device import Device
from polyhal.hal.discovery.plugins import describe
from polyhal.hal.kernels.tuning import Found, Key, Question, Tuning, Values, tunables
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.values import expect
from polyhal.hal.testing.tools.workloads import Runner, Workload, in_turns, workloads

_QUICK = 3
_ROUNDS = 15
_FINALISTS = 2
_CLEARLY = 1.03
"""The least speedup that is worth another kernel than the default one."""
_WINS = 0.7
"""The least share of rounds that a winner must win."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that is about to be tried: what to blame if nothing more is heard."""

    key: Key
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate that did not build, did not run, or gave wrong numbers."""

    key: Key
    values: Mapping[str, int]
    problem: str


@dataclass(frozen=True, slots=True)
class Result:
    """The end of the search for one shape class. Seconds are medians per call of the last comparison."""

    found: Found
    default: Mapping[str, int]
    default_seconds: float
    seconds: float
    tried: int
    refused: int
    left: int
    """Candidates that there was no time for."""


Event = Trial | Refused | Result


def search(
    device: Device,
    budget: float,
    only: str = "",
    done: Collection[Key] = (),
    skip: Collection[tuple[Key, tuple[tuple[str, int], ...]]] = (),
    work: Sequence[Workload] | None = None,
) -> Iterator[Event]:
    """Tune what the workloads `work`, by default those of the device's kind, ask for, within about `budget` seconds.

    `only` is a part of the names of families; questions in `done` and candidates in `skip` are passed over. Raises
    UnsupportedOpError where the backend has no tunables.
    """
    tuning, target = tunables(device), isolated(device)
    tuning.adopt({})  # the comparison is with the default, whatever was found before
    end = time.monotonic() + budget
    planned = _questions(target, tuning, workloads(device.type) if work is None else work, only, set(done))
    for i, (question, workload) in enumerate(planned):
        share = (end - time.monotonic()) / (len(planned) - i)
        if share <= 0:
            break
        yield from _Contest(target, tuning, question, workload, set(skip)).run(time.monotonic() + share)


def _questions(
    device: Device, tuning: Tuning, work: Sequence[Workload], only: str, done: set[Key]
) -> list[tuple[Question, Workload]]:
    """What the lowerings of the workloads ask, each with the first workload that asks it."""
    found: dict[Key, tuple[Question, Workload]] = {}
    for workload in work:
        if workload.dtype not in device.capabilities.compute:
            continue
        tuning.asked = {}
        try:
            Runner(device, workload.call()).run()
        except Exception:  # a kernel that fails by default is for `polyhal verify` to find
            tuning.asked = None
            continue
        asked, tuning.asked = tuning.asked, None
        for key, question in asked.items():
            if only in key[0] and key not in done:
                found.setdefault(key, (question, workload))
    return list(found.values())


class _Contest:
    """The search for one shape class."""

    def __init__(
        self, device: Device, tuning: Tuning, question: Question, workload: Workload,
        skip: set[tuple[Key, tuple[tuple[str, int], ...]]],
    ) -> None:  # fmt: skip
        self._device, self._tuning, self._question = device, tuning, question
        self._key: Key = (question.family.name, question.shape_class)
        self._skip = skip
        self._call = workload.call()
        self._runner = Runner(device, self._call)
        self._wanted = expect(self._call)

    def run(self, end: float) -> Iterator[Event]:
        q = self._question
        candidates = [
            c for c in q.family.candidates(self._tuning.features, q.default)
            if (self._key, tuple(sorted(c.items()))) not in self._skip
        ]  # fmt: skip
        with strict():
            self._adopt({})
            try:
                self._runner.check(self._wanted, "the default")
            except Exception as error:  # what fails by default is for `polyhal verify`, and nothing to compare with
                yield Refused(self._key, {}, describe(error))
                return
            quick: list[tuple[float, dict[str, int]]] = []
            tried = refused = 0
            for values in candidates:
                if time.monotonic() > end:
                    break
                yield Trial(self._key, values)
                tried += 1
                try:
                    self._adopt(values)
                    self._runner.check(self._wanted, str(self._call))
                    quick.append((min(self._runner.sample() for _ in range(_QUICK)), values))
                except Exception as error:  # drivers raise anything; the candidate is out
                    refused += 1
                    yield Refused(self._key, values, describe(error))
            quick.sort(key=lambda item: item[0])
            yield self._final([values for _, values in quick[:_FINALISTS]], tried, refused, len(candidates) - tried)
        self._adopt({})

    def _adopt(self, values: Values) -> None:
        """Have the next call lowered with these values."""
        self._tuning.trial = {self._key: values} if values else {}
        self._device.planner.forget()

    def _final(self, finalists: list[dict[str, int]], tried: int, refused: int, left: int) -> Result:
        """Time the finalists against the default, in turns."""
        contenders: list[dict[str, int]] = [{}, *finalists]
        runners = []
        for values in contenders:
            # Each keeps plans of its own, so that taking turns costs no lowering.
            self._adopt(values)
            runners.append(Runner(isolated(self._device), self._call))
            runners[-1].run()
        samples = in_turns(runners, _ROUNDS)
        medians = [statistics.median(s) for s in samples]
        best = min(range(len(medians)), key=medians.__getitem__)
        wins = sum(a > b for a, b in zip(samples[0], samples[best], strict=True)) / _ROUNDS
        if medians[0] < _CLEARLY * medians[best] or wins < _WINS:
            best = 0
        q = self._question
        day = datetime.now(UTC).date().isoformat()
        found = Found(*self._key, contenders[best], medians[0] / medians[best], day)
        default = {name: int(getattr(q.default, name)) for name in q.family.space}
        return Result(found, default, medians[0], medians[best], tried, refused, left)
