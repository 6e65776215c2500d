"""Inference captured for OpenVINO by the plug-in, compared with models that OpenVINO itself imports from PyTorch.

Needs PyTorch, OpenVINO, and the plug-in on the path: `PYTHONPATH=examples/plugins/openvino/src python -m benchmarks
openvino_steps`. Both have the same weights, compute in float32, find their input in place, and return the result to the host.
Results are compared before anything is timed, on one core by its processor time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from benchmarks.arguments import make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal import Device, jit, manual_seed, nn, no_grad, tensor
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.models.resnet import resnet18

_TOLERANCE = 1e-4
"""Largest difference of results, relative to the largest element: sums of some thousand terms in float32."""
_SAMPLE = 0.02
"""Seconds per sample, at least."""
_GPT = GPTConfig(vocab_size=1000, block_size=128, n_layer=4, n_head=4, n_embd=256)
_RNG = np.random.default_rng(0)


class ImportedModel(NamedTuple):
    """A model of Polyhal, the same in PyTorch, and its input."""

    title: str
    module: nn.Module
    peer: Any
    x: np.ndarray


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _mlp(classifier: Any, _: Any) -> ImportedModel:
    return ImportedModel("MLP 784-512-10, batch 64", MLP((784, 512, 10)), classifier("mlp"), _normal(64, 784))


def _cnn(classifier: Any, _: Any) -> ImportedModel:
    return ImportedModel("CNN of 2 layers, 32 images of 8x8", CNN(), classifier("cnn"), _normal(32, 1, 8, 8))


def _gpt(_: Any, gpt: Any) -> ImportedModel:
    title = "GPT of 4 layers of 256, 128 tokens"
    return ImportedModel(title, GPT(_GPT), gpt(_GPT), _RNG.integers(0, _GPT.vocab_size, (1, 128)))


def _resnet(classifier: Any, _: Any) -> ImportedModel:
    return ImportedModel(
        "ResNet-18, one image of 224x224", resnet18(10), classifier("resnet-18"), _normal(1, 3, 224, 224)
    )


MODELS: dict[str, Callable[[Any, Any], ImportedModel]] = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt, "resnet": _resnet}


def _copy_weights(model: ImportedModel) -> None:
    """Give PyTorch's model the weights of Polyhal's, by name, or in the order in which both define them."""
    import torch

    own = {n: torch.from_numpy(v.numpy()) for n, v in model.module.state_dict().items()}
    names = list(model.peer.state_dict())
    model.peer.load_state_dict(own if set(own) == set(names) else dict(zip(names, own.values(), strict=True)))


def imported(model: ImportedModel) -> Callable[[], np.ndarray]:
    """Return a run of the model that OpenVINO imports from PyTorch."""
    import openvino
    import torch

    x = torch.from_numpy(model.x)
    graph = openvino.convert_model(model.peer.eval(), example_input=x, input=[openvino.PartialShape(list(x.shape))])
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    request = openvino.Core().compile_model(graph, "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(model.x, shared_memory=True))

    def run() -> np.ndarray:
        request.infer()
        return np.array(request.get_output_tensor().data)

    return run


def captured(model: ImportedModel, device: Device) -> tuple[Callable[[], np.ndarray], Any]:
    """Return a run of the captured model on a device, and the captured function."""
    module, x = model.module.to(device).eval(), tensor(model.x, device=device)

    @jit
    def forward(x: Any) -> Any:
        with no_grad():
            return module(x)

    return lambda: forward(x).numpy(), forward


def main(arguments: Sequence[str]) -> int:
    """Measure, and return 1 if a captured model takes longer than the limit; exit if results differ."""
    parser = make_parser("openvino_steps", __doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--limit", type=float, default=1.2, help="largest median time, relative to OpenVINO's importer")
    args = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before runtimes start their threads
    import torch
    from polyhal_openvino.devices import create

    from benchmarks.torch_models import TorchGPT, classifier

    torch.set_num_threads(1)
    device = Device.opened("openvino", create("CPU"))
    rows, slow = [], []
    for name in args.models:
        manual_seed(0)
        model = MODELS[name](classifier, TorchGPT)
        _copy_weights(model)
        peer = imported(model)
        own, function = captured(model, device)
        expected = peer()
        difference = max(float(abs(own() - expected).max() / abs(expected).max()) for _ in range(3))
        if not difference <= _TOLERANCE:
            raise SystemExit(f"{name}: results differ by {difference:.1e} of the largest; expected {_TOLERANCE:.0e}")
        times = alternate(
            {"imported": peer, "captured": own}, args.repetitions, min_seconds=_SAMPLE, clock=time.process_time
        )
        ratio = times["captured"].median / times["imported"].median
        programs = function.explain().count("= program(")
        rows.append(
            {"model": model.title, "programs": programs, "difference": difference, "ratio": ratio}
            | {f"{way}_seconds": asdict(t) for way, t in times.items()}
        )
        both = ", ".join(f"{way} {t.text(1e3, 'ms')}" for way, t in times.items())
        print(f"{model.title}: {both}, ratio {ratio:.2f}, {programs} program, difference {difference:.0e}")
        slow += [name] if ratio > args.limit else []
    write(
        args.json,
        {"benchmark": "openvino_steps", "clock": "processor", **describe_machine([device]), "rows": rows},
    )
    return 1 if slow else 0
