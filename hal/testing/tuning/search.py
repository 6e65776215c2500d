"""The autotuner: search the tunable parameters of kernels on one device, with every candidate checked for correctness.

A candidate's results must keep the error bounds of the conformance kit. The fastest ones are then timed alternately with
the default, so that a slow phase of the machine affects both equally; a candidate that is not clearly faster is dropped.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from polyhal.hal.core import dispatch
from polyhal.hal.core.kernels.tuning import Key, TunedChoice, Tuning, TuningRequest, Values, tunables
from polyhal.hal.core.plugins.entry_points import describe
from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.system.reference.op_calls import expected_results
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.tuning.comparison import TWINS, compare, interleaved
from polyhal.hal.testing.tuning.workloads import Runner, Workload, workloads

_QUICK_SAMPLES = 3
_FINALISTS = 2


@dataclass(frozen=True, slots=True)
class CandidateTrial:
    """A candidate about to be tried, the suspect if the process ends."""

    key: Key
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """A candidate that did not build, did not run, or returned wrong results."""

    key: Key
    values: Mapping[str, int]
    problem: str


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result for one shape class. Seconds are per call, from the final comparison."""

    found: TunedChoice
    default: Mapping[str, int]
    default_seconds: float
    seconds: float
    tried: int
    refused: int
    left: int
    """Number of candidates skipped for lack of time."""


TuningEvent = CandidateTrial | RejectedCandidate | TuningResult


def search(
    device: Device,
    budget: float,
    only: str = "",
    done: Collection[Key] = (),
    skip: Collection[tuple[Key, tuple[tuple[str, int], ...]]] = (),
    work: Sequence[Workload] | None = None,
) -> Iterator[TuningEvent]:
    """Tune the parameters used by the workloads `work`, by default the workloads of the device's type, within `budget` seconds.

    `only` is a substring of the names of tunable families; shape classes in `done` and candidates in `skip` are skipped.
    Raises UnsupportedOpError if the backend has no tunables, and ValueError if no family matches `only`.
    """
    tuning, target = tunables(device), isolated(device)
    tuning.replace({})  # compare with the default, not with results of an earlier search
    planned = _questions(target, tuning, workloads(device.type) if work is None else work, only, set(done))
    end = time.monotonic() + budget
    for i, (question, workload) in enumerate(planned):
        share = (end - time.monotonic()) / (len(planned) - i)
        if share <= 0:
            break
        yield from _ShapeClassSearch(target, tuning, question, workload, set(skip)).run(time.monotonic() + share)


def _questions(
    device: Device, tuning: Tuning, work: Sequence[Workload], only: str, done: set[Key]
) -> list[tuple[TuningRequest, Workload]]:
    """Return the tunable choices made by lowering the workloads, each with its first workload.

    Raises ValueError if there are some but none matches `only`.
    """
    questions: dict[Key, tuple[TuningRequest, Workload]] = {}
    for workload in work:
        if workload.dtype not in device.capabilities.compute:
            continue
        tuning.requests = {}
        try:
            op = OPS[workload.op]
            params = {**op.schema.params, **workload.params}
            device.planner.plan(op, workload.specs(), dispatch.freeze(tuple(params.values())))
        except Exception:  # `polyhal verify` finds kernels whose default fails
            tuning.requests = None
            continue
        asked, tuning.requests = tuning.requests, None
        for key, question in asked.items():
            questions.setdefault(key, (question, workload))
    families = sorted({family for family, _ in questions})
    if families and not any(only in family for family in families):
        close = difflib.get_close_matches(only, families, 3) or families
        problem = f"no kernel family of this device has {only!r} in its name"
        raise ValueError(message("tune", problem, expected=", ".join(close), device=device))
    return [question for key, question in questions.items() if only in key[0] and key not in done]


class _ShapeClassSearch:
    """The search for one shape class."""

    def __init__(
        self,
        device: Device,
        tuning: Tuning,
        question: TuningRequest,
        workload: Workload,
        skip: set[tuple[Key, tuple[tuple[str, int], ...]]],
    ) -> None:
        self._device, self._tuning, self._question = device, tuning, question
        self._key: Key = (question.family.name, question.shape_class)
        self._skip = skip
        self._call = workload.call()
        self._runner = Runner(device, self._call)
        self._expected = expected_results(self._call)

    def run(self, end: float) -> Iterator[TuningEvent]:
        q = self._question
        candidates = [
            c
            for c in q.family.candidates(self._tuning.features, q.default)
            if (self._key, tuple(sorted(c.items()))) not in self._skip
        ]
        with strict():
            self._adopt({})
            try:
                self._runner.check(self._expected, "the default")
            except (
                Exception
            ) as error:  # the default fails: there is no baseline, and `polyhal verify` handles the failure
                yield RejectedCandidate(self._key, {}, describe(error))
                return
            quick: list[tuple[float, dict[str, int]]] = []
            tried = refused = 0
            for values in candidates:
                if time.monotonic() > end:
                    break
                yield CandidateTrial(self._key, values)
                tried += 1
                try:
                    self._adopt(values)
                    self._runner.check(self._expected, str(self._call))
                    quick.append((min(self._runner.sample() for _ in range(_QUICK_SAMPLES)), values))
                except Exception as error:  # drivers raise anything; drop the candidate
                    refused += 1
                    yield RejectedCandidate(self._key, values, describe(error))
            quick.sort(key=lambda item: item[0])
            yield self._final([values for _, values in quick[:_FINALISTS]], tried, refused, len(candidates) - tried)
        self._adopt({})

    def _adopt(self, values: Values) -> None:
        """Lower later calls with these values."""
        self._tuning.trial = {self._key: values} if values else {}
        self._device.planner.forget()

    def _final(self, finalists: list[dict[str, int]], tried: int, refused: int, left: int) -> TuningResult:
        """Time the finalists alternately with the default."""
        contenders: list[dict[str, int]] = [{}, *finalists]
        runners = []
        for values in contenders * TWINS:
            # Each has separate plans, so that alternating does not repeat the lowering.
            self._adopt(values)
            runners.append(Runner(isolated(self._device), self._call))
            runners[-1].run()
        samples = interleaved(runners)
        sides = [samples[i :: len(contenders)] for i in range(len(contenders))]
        results = [compare(sides[0], side) for side in sides]
        best = max(range(len(results)), key=lambda i: results[i].speedup)
        speedup = results[best].speedup
        q = self._question
        day = datetime.now(UTC).date().isoformat()
        found = TunedChoice(*self._key, contenders[best], speedup, day)
        default = {name: int(getattr(q.default, name)) for name in q.family.space}
        return TuningResult(found, default, results[0].before, results[best].after, tried, refused, left)
