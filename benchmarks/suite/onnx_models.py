"""ONNX models that PyTorch exports, run by `polyhal.onnx` and by onnxruntime, from arrays to arrays.

Both run on one core, timed by the processor's time, in alternation: on a shared machine wall-clock times vary more than the
programs differ. Results are compared first. Exits with code 1 if they differ.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal import Device

TOLERANCE = 1e-4
"""Maximum difference of results, relative to the largest element: sums of some thousand terms in float32."""
PEER = "onnxruntime"
_RNG = np.random.default_rng(0)


def _ids(*shape: int) -> np.ndarray:
    return _RNG.integers(0, 1000, shape)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _classifier(name: str) -> Any:
    from benchmarks.torch_models import classifier

    return classifier(name)


def _gpt() -> Any:
    from benchmarks.torch_models import TorchGPT
    from polyhal.models.gpt_config import GPTConfig

    return TorchGPT(GPTConfig(vocab_size=1000, block_size=128, n_layer=4, n_head=4, n_embd=256))


def _encoder() -> Any:
    from benchmarks.torch_models import Encoder

    return Encoder(1000, 256, 4, 4)


MODELS: dict[str, tuple[str, Callable[[], Any], np.ndarray]] = {
    "mlp": ("MLP 784-512-10, batch 64", lambda: _classifier("mlp"), _normal(64, 784)),
    "resnet": ("ResNet-18, one image of 64x64", lambda: _classifier("resnet-18"), _normal(1, 3, 64, 64)),
    "gpt": ("GPT of 4 layers of 256, 128 tokens", _gpt, _ids(1, 128)),
    "bert": ("BERT of 4 layers of 256, 128 tokens", _encoder, _ids(1, 128)),
}
"""Title, module of PyTorch, and input of each model."""


def exported(module: Any, x: np.ndarray) -> bytes:
    """Return a module as an ONNX model of opset 17, by PyTorch's exporter of traces."""
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter of traces is deprecated; the other one needs onnxscript
        torch.onnx.export(
            module.eval(), (torch.from_numpy(x),), file, dynamo=False, opset_version=17, input_names=["x"]
        )
    return file.getvalue()


def measure(name: str, devices: Sequence[Device], repetitions: int) -> dict[str, Any]:
    """Measure one model on devices and by onnxruntime. Returns a row with seconds per call."""
    import onnxruntime
    import torch

    import polyhal.onnx

    title, make, x = MODELS[name]
    torch.manual_seed(0)
    data = exported(make(), x)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def peer() -> np.ndarray:
        return session.run(None, {"x": x})[0]  # type: ignore[no-any-return]

    def run_on(device: Device) -> Callable[[], np.ndarray]:
        model = polyhal.onnx.load(data, device=device)
        return lambda: model(x).numpy()  # type: ignore[no-any-return]

    competitors: dict[str, Callable[[], Any]] = {PEER: peer, **{d.name: run_on(d) for d in devices}}
    expected = peer()
    difference = max(float(abs(run() - expected).max() / abs(expected).max()) for run in competitors.values())
    times = alternate(competitors, repetitions, min_seconds=0.02, clock=time.process_time)
    who = {n: [t.median, t.low, t.high] for n, t in times.items()}
    for n, t in times.items():
        print(f"{title}: {n} {t.text(1e3, 'ms')}, {who[PEER][0] / t.median:.2f} of {PEER}'s speed")
    return {"model": title, "difference": difference, "who": who}


def main(arguments: Sequence[str]) -> int:
    """Measure, and return 1 if results differ."""
    parser = make_parser("onnx_models", __doc__, "opencl")
    known = ",".join(MODELS)
    parser.add_argument("--models", type=lambda t: choices(t, tuple(MODELS)), default=list(MODELS), help=known)
    parser.add_argument("--repetitions", type=int, default=20, help="samples of each competitor; default: 20")
    chosen = parser.parse_args(arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before drivers start their threads
    devices = open_devices(chosen.devices)
    rows = [measure(name, devices, chosen.repetitions) for name in chosen.models]
    write(chosen.json, {"benchmark": "onnx_models", **describe_machine(devices), "rows": rows})
    return int(any(row["difference"] > TOLERANCE for row in rows))
