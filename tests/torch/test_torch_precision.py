"""`torch.set_float32_matmul_precision` and the flags of TF32 on the device: eager, recorded and compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

import polyhal
import polyhal.torch
from polyhal.hal.core.settings.state import settings

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]
PRECISIONS = ("highest", "high", "medium")


@pytest.fixture(autouse=True)
def _settings_are_restored() -> Iterator[None]:
    # PyTorch's testing utilities, which other tests import, refuse to set flags without this.
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():
        yield
        torch.backends.fp32_precision = "none"  # type: ignore[attr-defined]
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
    assert polyhal.get_float32_matmul_precision() == "highest"


def test_the_precision_of_products_is_that_of_pytorch() -> None:
    for precision in (*PRECISIONS, "highest"):
        torch.set_float32_matmul_precision(precision)
        assert polyhal.get_float32_matmul_precision() == torch.get_float32_matmul_precision() == precision


def test_a_wrong_precision_changes_nothing() -> None:
    torch.set_float32_matmul_precision("high")
    with pytest.warns(UserWarning, match="no effect"):
        torch.set_float32_matmul_precision("low")
    assert polyhal.get_float32_matmul_precision() == "high"


@pytest.mark.parametrize(
    ("owner", "name", "on", "off"),
    [
        (torch.backends.cuda.matmul, "allow_tf32", True, False),
        (torch.backends.cuda.matmul, "fp32_precision", "tf32", "ieee"),
        (torch.backends, "fp32_precision", "tf32", "ieee"),
    ],
    ids=["allow_tf32", "of matmul", "of all backends"],
)
def test_flags_of_tf32_stand_for_high_precision(owner: object, name: str, on: object, off: object) -> None:
    """As `torch.set_float32_matmul_precision` documents: "high" is equivalent to `allow_tf32 = True`."""
    torch.backends.cuda.matmul.fp32_precision = "none"
    for value, expected in ((on, "high"), (off, "highest"), (on, "high")):
        setattr(owner, name, value)
        assert polyhal.get_float32_matmul_precision() == expected


def test_the_flag_of_convolutions_on_cuda_changes_nothing() -> None:
    """It is True by default, so that it is not a choice of the program."""
    before = torch.backends.cudnn.allow_tf32
    for value in (True, False, before):
        torch.backends.cudnn.allow_tf32 = value
        assert polyhal.get_float32_matmul_precision() == "highest"


def test_recorded_steps_are_recorded_for_each_precision() -> None:
    x = torch.ones(3, 4, device="polyhal")
    step = polyhal.torch.jit(lambda x: x @ x.t(), warm_up=False)
    for _ in range(3):
        for precision in PRECISIONS:
            torch.set_float32_matmul_precision(precision)
            assert step(x).tolist() == [[4.0] * 3] * 3
    recorded = [{n.place.settings[0] for n in g.nodes if n.op.name == "matmul"} for g in step.graphs]
    assert recorded == [{"highest"}, {"high"}, {"medium"}]


def test_compiled_programs_are_made_for_each_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal.torch.compiler import program

    made: list[str] = []
    original = program.Program.__init__

    def init(*args: object, **kwargs: object) -> None:
        made.append(settings.precision)
        original(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(program.Program, "__init__", init)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x @ x.t(), backend="polyhal")
    for _ in range(2):
        for precision in PRECISIONS:
            torch.set_float32_matmul_precision(precision)
            assert compiled(torch.ones(3, 4, device="polyhal")).tolist() == [[4.0] * 3] * 3
    assert sorted(made) == sorted(PRECISIONS)


@pytest.mark.slow
def test_a_precision_set_before_the_device_is_used_counts() -> None:
    program = (
        "import torch; torch.set_float32_matmul_precision('medium'); torch.ones(1, device='polyhal'); "
        "import polyhal; assert polyhal.get_float32_matmul_precision() == 'medium'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
