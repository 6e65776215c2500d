"""`polyhal kernels`, `prebuild` and `tune`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyhal.cli.commands import tune
from polyhal.cli.workers import pool
from polyhal.cli.workers.search import main as search
from polyhal.hal.core.kernels import tuning
from polyhal.hal.core.kernels.library import KernelOverrides
from polyhal.hal.device import Device
from polyhal.hal.system.discovery.registry import registry
from polyhal.hal.testing.tuning import kernel_check
from polyhal.hal.testing.tuning import search as searching
from polyhal.hal.testing.tuning.comparison import interleaved
from polyhal.hal.testing.tuning.workloads import Workload

from .conftest import Command, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not registry().probe("opencl"), reason="there is no OpenCL device")]
KERNEL = "optim/scale_all.cl"
"""A kernel of one op with few samples."""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use empty folders. Returns the folder of changed kernels."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYHAL_KERNELS", str(tmp_path / "kernels"))
    monkeypatch.setattr(Device("opencl").backend.kernels, "overrides", KernelOverrides(Device("opencl").info))  # type: ignore[attr-defined]
    return tmp_path / "kernels"


@pytest.fixture(scope="module", autouse=True)
def found_once() -> Iterator[None]:
    """Lower every sample once for all tests, to find the ops that use a kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_check, "ops_by_kernel", functools.cache(kernel_check.ops_by_kernel))
        yield


def edited(polyhal: Command, monkeypatch: pytest.MonkeyPatch, change: str) -> Outcome:
    """Run `polyhal kernels edit` with an editor that applies `change`, Python code about `text`."""
    code = f"import sys, pathlib; p = pathlib.Path(sys.argv[1]); text = p.read_text(); {change}; p.write_text(text)"
    monkeypatch.setenv("EDITOR", f'"{sys.executable}" -c "{code}"')
    return polyhal("kernels", "edit", "scale_all", "--device", "opencl")


def test_kernels_are_listed_and_shown(polyhal: Command) -> None:
    listed = polyhal("kernels", "list", "--device", "opencl")
    assert listed.code == 0
    assert "rowwise/softmax.cl" in listed.out
    assert polyhal("kernels", "show", "softmax", "--device", "opencl").out.startswith("// Softmax")
    assert "lib/dtypes.h" in listed.out
    figures = polyhal("kernels", "show", KERNEL, "--device", "opencl", "--statistics").out
    assert "max group size" in figures
    wrong = polyhal("kernels", "show", "softmx", "--device", "opencl")
    assert wrong.code == 2
    assert "did you mean softmax" in wrong.err
    assert "no kernel files" in polyhal("kernels", "list", "--device", "numpy").err


def test_a_correct_changed_kernel_is_used_and_can_be_restored(
    polyhal: Command, monkeypatch: pytest.MonkeyPatch, folders: Path
) -> None:
    assert "contains no changed kernel" in polyhal("kernels", "check", "--device", "opencl").out
    done = edited(polyhal, monkeypatch, "text = '// mine' + chr(10) + text")
    assert done.code == 0, done.err
    assert f"{KERNEL} passed" in done.out
    assert "speedup" in done.out
    overrides = KernelOverrides(Device("opencl").info)
    assert (overrides.text(KERNEL) or "").startswith("// mine")
    assert "+// mine" in polyhal("kernels", "show", KERNEL, "--diff", "--device", "opencl").out
    assert polyhal("kernels", "restore", KERNEL, "--device", "opencl").code == 0
    assert (folders / f"{KERNEL}.old").is_file()
    assert overrides.text(KERNEL) is None
    assert polyhal("kernels", "list", "--device", "opencl").err == ""
    assert "you have not changed" in polyhal("kernels", "check", KERNEL, "--device", "opencl").err


def test_a_wrong_changed_kernel_is_refused_and_the_differences_are_shown(
    polyhal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = edited(polyhal, monkeypatch, "text = text.replace('* scale', '* scale * 1.01f')")
    assert wrong.code == 1
    assert "is rejected and the shipped kernel stays in use" in wrong.err
    assert "expected" in wrong.err
    with pytest.warns(UserWarning, match="is not used: forward/scale_all"):
        assert KernelOverrides(Device("opencl").info).text(KERNEL) is None
    broken = edited(polyhal, monkeypatch, "text = text.replace('* scale', '* scael')")
    assert broken.code == 1
    assert "it does not build" in broken.err
    assert "'scael'" in broken.out
    assert f"> {KERNEL}:" in broken.out
    assert f"mend {KERNEL}, which you have changed" in broken.out


def test_an_editor_that_does_not_start_is_reported_and_leaves_no_file(
    polyhal: Command, monkeypatch: pytest.MonkeyPatch, folders: Path
) -> None:
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "the editor 'no-such-editor' does not start" in polyhal("kernels", "edit", KERNEL, "--device", "opencl").err
    assert not (folders / KERNEL).exists()
    assert "is unchanged" in edited(polyhal, monkeypatch, "text = text").out


def test_prebuild_divides_the_programs_and_caches_them(polyhal: Command, tmp_path: Path) -> None:
    arguments = ("prebuild", "--device", "opencl", "--for", "basics", "--jobs", 2)
    first = polyhal(*arguments)
    assert first.code == 0, first.err
    assert "programs built in" in first.out
    built = [line.split()[1] for line in first.out.splitlines() if ".cl " in line]
    assert sum(map(int, built)) == int(next(x for x in first.out.splitlines() if "programs built" in x).split()[0])
    if list((tmp_path / "cache" / "opencl").glob("programs/*.bin")):
        second = polyhal(*arguments[:-3], "basics,used", "--jobs", 1)
        assert second.out.splitlines()[-1].startswith("0 programs built")
    assert list((tmp_path / "cache" / "calls").iterdir())


def test_prebuild_refuses_unknown_workloads(polyhal: Command) -> None:
    assert "unknown workload 'gpt5'" in polyhal("prebuild", "--for", "gpt5", "--device", "opencl").err
    assert "no workload is given" in polyhal("prebuild", "--for", ",", "--device", "opencl").err
    assert "no kernel files" in polyhal("prebuild", "--device", "numpy").err


def test_a_search_sends_every_event(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "workloads", lambda kind: [Workload("add", ((512,), (512,)), {})])
    monkeypatch.setattr(searching, "interleaved", functools.partial(interleaved, rounds=3))
    request = {"device": "opencl", "budget": 3.0, "only": "elementwise", "done": [], "skip": []}
    assert search(request) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"trial", "result"} <= {e["event"] for e in events}
    (result,) = [e for e in events if e["event"] == "result"]
    assert tuning.TunedChoice.from_json(result["found"]).key == ("elementwise", "small")
    assert search({**request, "device": "numpy"}) == 1
    assert "no tunables" in capsys.readouterr().out


class ScriptedPool:
    """A worker pool that yields the messages of a script; one script per pool."""

    scripts: list[list[pool.Message | Exception]]
    requests: list[dict[str, Any]]

    def __init__(self, module: str, arguments: list[list[str]]) -> None:
        self.requests.append(json.loads(arguments[0][0]))

    def __enter__(self) -> ScriptedPool:
        return self

    def __exit__(self, *exception: object) -> None:
        """No-op: no process runs."""

    def messages(self, timeout: float) -> Iterator[pool.Message]:
        for message in self.scripts.pop(0):
            if isinstance(message, Exception):
                raise message
            yield message


def event(**content: Any) -> pool.Message:
    return pool.Message(0, content)


def test_tuning_continues_after_a_crash_and_its_choices_are_stored(
    polyhal: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def result(shape: str, values: dict[str, int]) -> pool.Message:
        found = {"family": "rows", "shape_class": shape, "values": values, "speedup": 1.5, "date": "2026-01-02"}
        return event(
            event="result",
            found=found,
            default={"group": 64},
            default_seconds=3e-5,
            seconds=2e-5,
            tried=2,
            refused=1,
            left=3,
        )

    crashing, slow = [["rows", "b"], {"group": 8}], [["rows", "b"], {"group": 16}]
    ScriptedPool.requests = []
    ScriptedPool.scripts = [
        [
            result("a", {"group": 128}),
            event(event="trial", key=crashing[0], values=crashing[1]),
            pool.Message(0, {}, -11),
        ],
        [event(event="trial", key=slow[0], values=slow[1]), TimeoutError("no answer within 60 s")],
        [result("b", {}), pool.Message(0, {}, 0)],
    ]
    monkeypatch.setattr(pool, "WorkerPool", ScriptedPool)
    done = polyhal("tune", "--device", "opencl", "--budget", "1m")
    assert done.code == 0, done.err
    assert "group 64 → 128" in done.out
    assert "2 of 5" in done.out
    assert "keep" in done.out
    assert "rows b with group 8 is skipped: the process exited with code -11" in done.out
    assert "rows b with group 16 is skipped: no answer within 60 s" in done.out
    assert [r["skip"] for r in ScriptedPool.requests] == [[], [crashing], [crashing, slow]]
    assert ScriptedPool.requests[2]["done"] == [["rows", "a"]]

    assert "1.50x" in polyhal("tune", "--device", "opencl", "--show").out
    file = tmp_path / "mine.json"
    assert "2 choices written" in polyhal("tune", "--device", "opencl", "--export", file).out
    assert polyhal("tune", "--device", "opencl", "--reset").code == 0
    assert "no choices are stored" in polyhal("tune", "--device", "opencl", "--show").out
    assert "2 choices imported" in polyhal("tune", "--device", "opencl", "--import", file).out
    file.write_text(file.read_text().replace('"polyhal": "', '"polyhal": "9.'))
    assert "measured elsewhere (polyhal: '9." in polyhal("tune", "--device", "opencl", "--import", file).err
    assert "No such file" in polyhal("tune", "--device", "opencl", "--import", tmp_path / "none").err


def test_tuning_says_why_nothing_was_tuned(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WorkerPool", ScriptedPool)
    ScriptedPool.requests = []
    ScriptedPool.scripts = [[pool.Message(0, {}, 0)]]
    assert "no kernel of this device has tunables" in polyhal("tune", "--device", "opencl").err
    ScriptedPool.scripts = [[event(event="failed", problem="the device is gone"), pool.Message(0, {}, 1)]]
    failed = polyhal("tune", "--device", "opencl")
    assert failed.code == 1
    assert "the device is gone" in failed.err
    assert "no tunables" in polyhal("tune", "--device", "numpy").err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5", 5), ("1.5m", 90), ("2 h", 7200)])
def test_budgets(text: str, seconds: float) -> None:
    assert tune._seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "3x", "-1s", "0s"])
def test_invalid_budgets(text: str, polyhal: Command) -> None:
    assert "is not a duration" in polyhal("tune", "--device", "opencl", f"--budget={text}").err
