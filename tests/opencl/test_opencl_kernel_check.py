"""The check of changed kernels on a CPU reports a missing barrier even if work-groups have one work-item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polyhal.hal.device import Device
from polyhal.hal.testing.tuning import kernel_check

pytestmark = pytest.mark.filterwarnings("ignore:.*it has not been checked")
KERNEL = "rowwise/softmax.cl"


@pytest.fixture
def opened(device: Any) -> Device:
    """Return the device under test in the check's format."""
    return Device.opened("opencl", device.backend)


@pytest.fixture
def changed(opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the kernel's replacement, in an empty folder."""
    monkeypatch.setattr(opened.backend.kernels.overrides, "folder", tmp_path)
    monkeypatch.setattr(kernel_check, "ops_by_kernel", lambda device: {KERNEL: ["softmax"]})
    monkeypatch.setattr(kernel_check, "_timings", lambda *args: ())
    path = tmp_path / KERNEL
    path.parent.mkdir()
    return path


def test_a_softmax_without_its_sum_over_the_group_is_refused(opened: Any, changed: Path) -> None:
    if not opened.backend.runtime.features.cpu:
        pytest.skip("the device runs groups anyway")
    shipped = opened.backend.kernels.shipped(KERNEL)
    assert shipped.count("GROUP_SUM(sum)") == 1
    changed.write_text(shipped.replace("GROUP_SUM(sum)", ""))
    result = kernel_check.check(opened, KERNEL)
    assert result.passed, "the kernels for processors pass"
    assert result.problem.startswith("with several work-items per group, as on a GPU: forward/softmax/float32")


def test_a_softmax_that_is_right_in_groups_passes(opened: Any, changed: Path) -> None:
    changed.write_text("// mine\n" + opened.backend.kernels.shipped(KERNEL))
    before = opened.backend.runtime.features
    assert not kernel_check.check(opened, KERNEL).problem
    assert opened.backend.runtime.features is before
