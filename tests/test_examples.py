"""The example programs run, and learn: what they print is better than chance, or than the model before training.

Most run in this process, on NumPy and with few steps: a program of its own would spend more time on imports than on the
example. Those with kernels of their own run on every device.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from devices import PARITY_DEVICES

import polyhal as ph
from polyhal.backends.sim import polyhal_backends
from polyhal.hal.system.discovery.registry import registry

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"

Run = Callable[..., str]


@pytest.fixture
def run(numpy_device: ph.Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an example with arguments, and return its output."""

    def output(name: str, *arguments: str, device: str = "numpy") -> str:
        monkeypatch.setattr(sys, "argv", [name, "--device", device, *arguments])
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setenv("MPLBACKEND", "agg")
        capsys.readouterr()
        code = None
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr().out
        assert not code, printed
        return printed

    return output


def number(pattern: str, text: str) -> float:
    """The number that the only group of a pattern matches at the pattern's last place in the text."""
    found = re.findall(pattern, text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return float(found[-1])


@pytest.mark.parametrize(("name", "steps", "target"), [("digits_mlp.py", 300, 95), ("digits_cnn.py", 120, 97)])
def test_digits(name: str, steps: int, target: int, run: Run) -> None:
    assert number(r"test accuracy ([\d.]+)%", run(name, "--steps", str(steps))) >= target


def test_missed_target_is_an_error(run: Run) -> None:
    with pytest.raises(AssertionError, match="test accuracy"):
        run("digits_mlp.py", "--steps", "20")


def test_quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    assert "sin(1) is about 0.8" in run("quickstart.py")
    assert "0.weight" in ph.load(tmp_path / "sine.safetensors", "numpy")["model"]


def test_digits_in_a_page(tmp_path: Path, run: Run) -> None:
    page = tmp_path / "digits.html"
    assert number(r"test accuracy ([\d.]+)%", run("export_digits.py", str(page), "--steps", "60")) > 50
    assert "polyhal-contents" in page.read_text(encoding="utf-8")


def test_gpt_in_a_page(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "page"
    assert number(r"([\d.]+) bits per character", run("export_gpt.py", str(folder), "--steps", "3")) < 7
    assert (folder / "index.html").exists()


@pytest.mark.slow
def test_diffusion_in_a_page(tmp_path: Path, run: Run) -> None:
    page = tmp_path / "diffusion.html"
    assert number(r"step +3  loss ([\d.]+)", run("export_diffusion.py", str(page), "--steps", "3")) < 3
    assert "polyhal-contents" in page.read_text(encoding="utf-8")


@pytest.mark.skipif(not registry().probe("opencl"), reason="needs an OpenCL device")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_training_goes_on_in_c(run: Run) -> None:
    printed = run("export_c.py", "--steps", "300", device="opencl")
    first, last = re.findall(r"mean squared error ([\d.]+)", printed)
    assert float(last) < float(first) / 10
    assert "Python: 320 steps in all" in printed


def declares_ops(name: str, device: str) -> str:
    """Return the output of a program that declares ops: in a process of its own, since other tests list the ops that there
    are."""
    command = [sys.executable, str(EXAMPLES / name), "--device", device]
    environment = {**os.environ, "POLYHAL_DEVICE": device}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "squared error below 0.001: True" in done.stdout, done.stdout
    return done.stdout


@pytest.mark.parametrize("device", [d for d in PARITY_DEVICES if d != "numpy:contiguous_only"])
def test_custom_kernel(device: str) -> None:
    assert "from the op's own source" in declares_ops("custom_kernel.py", device)


@pytest.mark.parametrize("device", ["numpy", *[d for d in PARITY_DEVICES if d.startswith("opencl")]][:2])
def test_custom_op(device: str) -> None:
    assert "checks passed" in declares_ops("custom_op.py", device)


def test_residual_network(run: Run) -> None:
    """Chance is 10 %; five standard deviations above it, of 360 images, are 18 %."""
    printed = run("digits_resnet.py", "--steps", "60")
    assert number(r"before training ([\d.]+)% right", printed) < 25
    assert number(r"after training ([\d.]+)% right", printed) > 60


def test_variational_autoencoder(tmp_path: Path, run: Run) -> None:
    """Better than pixels' averages: the code says something about the image."""
    printed = run("digits_vae.py", "--steps", "250", "--picture", str(tmp_path / "vae.png"))
    average = number(r"average pixels ([\d.]+) nats", printed)
    assert (
        number(r"after training: ([\d.]+) nats", printed) < average - 1 < number(r"before training: ([\d.]+)", printed)
    )
    assert (tmp_path / "vae.png").read_bytes().startswith(b"\x89PNG")


def test_diffusion(run: Run) -> None:
    """Chance is 10 % with a standard deviation of 3 %, in 100 samples; 25 % are five of them above."""
    printed = run("digits_ddpm.py", "--steps", "120")
    assert number(r"([\d.]+)% of samples look like the requested digit before", printed) < 25
    assert number(r"([\d.]+)% of samples look like the requested digit after", printed) > 25


def test_pinn(run: Run) -> None:
    """The error of a network that is zero everywhere is 1."""
    printed = run("pinn.py", "--steps", "200")
    assert number(r"error before training ([\d.]+)", printed) > 0.9
    assert number(r"error after training ([\d.]+)", printed) < 0.4


def test_text_of_an_lstm(run: Run) -> None:
    """Below the entropy of single characters: it has learned which characters follow each other."""
    printed = run("char_lstm.py", "--steps", "40")
    chance = number(r"frequency of each character: ([\d.]+) bits", printed)
    assert number(r"after training: ([\d.]+) bits", printed) < chance - 0.2
    assert number(r"before training: ([\d.]+) bits", printed) > chance
    assert "\nA kernel " in printed


def test_sorting(run: Run) -> None:
    """By chance one row in a hundred million is right."""
    printed = run("sort_transformer.py", "--steps", "80")
    assert number(r"([\d.]+)% of 200 rows sorted before", printed) == 0
    assert number(r"([\d.]+)% of 200 rows sorted after", printed) > 30


def test_graph_network(run: Run) -> None:
    """Chance is 25 %, and features by themselves reach little more."""
    printed = run("gnn.py", "--steps", "60")
    alone = number(r"without edges: .* ([\d.]+)% after", printed)
    assert alone < 60
    assert number(r"with edges: .* ([\d.]+)% after", printed) > alone + 15


def test_mixture_of_experts(run: Run) -> None:
    """An expert's even share is 12 %."""
    printed = run("moe.py", "--steps", "100")
    assert number(r"balance 0.1, before training: error ([\d.]+)", printed) > 1
    assert number(r"balance 0.1, after  training: error ([\d.]+)", printed) < 0.3
    assert number(r"balance 0.1, after .* (\d+)%\n", printed) >= 5, "every expert is used"


def test_low_rank_adapters(run: Run) -> None:
    printed = run("lora.py", "--steps", "200")
    assert number(r"rotated ([\d.]+)%", printed) < 30
    adapted = number(r"trained: ([\d.]+)% of rotated", printed)
    assert adapted > 75
    assert number(r"merged, .* ([\d.]+)%", printed) == pytest.approx(adapted, abs=0.6), "two images of 360"


def test_fine_tuning(run: Run) -> None:
    """Chance is 50 % with a standard deviation of 2.6 %, in 360 images."""
    printed = run("finetune.py", "--steps", "120")
    assert "missing: ['heads.odd.weight', 'heads.odd.bias']" in printed
    tuned = number(r"fine-tuned  : .* ([\d.]+)% after", printed)
    assert tuned > 70
    assert tuned > number(r"from scratch: .* ([\d.]+)% after", printed)


def test_language_models_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A random model predicts a text far worse than chance, which is 262 of 262 tokens; the adapters learn the rhyme."""
    for library in ("gguf", "tokenizers", "jinja2"):
        pytest.importorskip(library, reason="needs the extra: pip install 'polyhal[llm]'")
    from tests.llm.small_models import with_bytes

    model = str(with_bytes(tmp_path / "model.gguf", context=128))
    learning = ("--steps", "40", "--lr", "0.02", "--save", str(tmp_path / "adapter"))
    printed = run("finetune_language_model.py", model, *learning)
    assert number(r"before: perplexity ([\d.]+)", printed) > 262
    assert number(r"after: perplexity ([\d.]+)", printed) < 100
    assert (tmp_path / "adapter" / "adapter_config.json").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\n"))
    assert "2,696 parameters" in run("chat.py", model, "--max-tokens", "3")


def test_gradients_of_samples_and_ensembles(run: Run) -> None:
    """By chance 7 % of the suspects are wrong."""
    printed = run("per_sample_gradients.py", "--steps", "90")
    assert number(r"after some training: ([\d.]+)%", printed) > 60
    assert number(r"as an ensemble ([\d.]+)%", printed) > 90


def test_the_simulated_gpu_step_by_step(run: Run) -> None:
    if "sim" not in registry().backends:  # installed before there was one
        registry().add(*polyhal_backends())
    printed = run("simulated_gpu.py")
    steps = [line.split()[2] for line in printed.splitlines() if re.match(r" +\d+\.\d{3}  +\w", line)]
    assert [step for step in steps if step in ("allocate", "free")] == ["allocate"] * 3 + ["free"] * 3
    assert "callback: the product has arrived" in printed
    assert "equal to NumPy's result: True" in printed
