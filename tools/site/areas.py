"""The pages of the API reference, and the public modules that each covers."""

from __future__ import annotations

from typing import NamedTuple


class Area(NamedTuple):
    """A page of the reference: all public names of `modules`, and names of `polyhal` that are defined below `homes`."""

    page: str
    title: str
    modules: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()


_HAL, _OPS = "polyhal.hal", "polyhal.hal.ops"
AREAS = (
    Area("tensor", "The tensor", homes=("polyhal.tensor.tensor",)),
    Area(
        "creation",
        "Creation, dtypes and devices of tensors",
        homes=(
            "",
            "polyhal.creation",
            "polyhal.dtype_queries",
            "polyhal.interchange",
            "polyhal.array_api",
            "polyhal.tensor.copying",
            "polyhal.memory_format",
            "polyhal.default_device",
            f"{_HAL}.dtypes",
            f"{_HAL}.device",
        ),
    ),
    Area("elementwise", "Elementwise ops", homes=(f"{_OPS}.pointwise", f"{_OPS}.special", f"{_OPS}.complex_numbers")),
    Area("reductions", "Reductions, sorting and statistics", homes=(f"{_OPS}.reductions",)),
    Area("layout", "Shapes, joining and splitting", homes=(f"{_OPS}.layout",)),
    Area("indexing", "Indexing and scattering", homes=(f"{_OPS}.indexing",)),
    Area("products", "Products of matrices", homes=(f"{_OPS}.linear_algebra", "polyhal.linalg")),
    Area("ops-of-layers", "Ops of layers", homes=(f"{_OPS}.nn", "polyhal.nn")),
    Area("linalg", "Linear algebra", ("polyhal.linalg",)),
    Area("export", "Steps without Python", ("polyhal.export",)),
    Area("fft", "Fourier transforms", ("polyhal.fft",), (f"{_OPS}.fourier",)),
    Area("special", "Special functions", ("polyhal.special",)),
    Area("signal", "Windows", ("polyhal.signal", "polyhal.signal.windows"), ("polyhal.signal",)),
    Area("random", "Random numbers", ("polyhal.random",), ("polyhal.sampling", "polyhal.random")),
    Area(
        "distributions",
        "Probability distributions",
        tuple(f"polyhal.distributions{n}" for n in ("", ".transforms", ".constraints")),
    ),
    Area(
        "autograd", "Automatic differentiation", ("polyhal.autograd", "polyhal.autograd.functional"), ("polyhal.tape",)
    ),
    Area("func", "Transforms of functions", ("polyhal.func",), ("polyhal.func",)),
    Area(
        "jit",
        "Captured steps, graphs and kernels",
        homes=(
            "polyhal.steps",
            "polyhal.graphs",
            "polyhal.host_calls",
            f"{_HAL}.core.execution",
            f"{_OPS}.user_kernels",
        ),
    ),
    Area("nn", "Layers", ("polyhal.nn",)),
    Area("nn.functional", "Functions of layers", ("polyhal.nn.functional",)),
    Area("nn.init", "Initialization and utilities of layers", ("polyhal.nn.init", "polyhal.nn.utils")),
    Area("optim", "Optimizers", ("polyhal.optim", "polyhal.optim.lr_scheduler")),
    Area("amp", "Mixed precision", ("polyhal.amp",), ("polyhal.mixed_precision",)),
    Area(
        "data",
        "Data loading",
        (
            "polyhal.data",
            *(f"polyhal.utils{n}" for n in ("", ".data", ".files", ".checkpoint", ".curves", ".metrics", ".progress")),
        ),
    ),
    Area("serialize", "Saving and loading", ("polyhal.serialize",), ("polyhal.serialize",)),
    Area("distributed", "Several devices and processes", ("polyhal.distributed", "polyhal.parallel")),
    Area("profiler", "Profiling", ("polyhal.profiler",), ("polyhal.profiler",)),
    Area("devices", "Devices", ("polyhal.devices",)),
    Area(
        "settings",
        "Settings, checks and explanations",
        homes=(f"{_HAL}.core.settings", "polyhal.explanation", f"{_HAL}.core.dispatch", f"{_HAL}.system"),
    ),
    Area("llm", "Language models", ("polyhal.llm", "polyhal.generation", "polyhal.adapters", "polyhal.finetune")),
    Area(
        "models",
        "Models, texts and training",
        ("polyhal.models", "polyhal.text", "polyhal.training", "polyhal.calibration"),
    ),
    Area("onnx", "ONNX", ("polyhal.onnx",)),
    Area("torch", "PyTorch's device", ("polyhal.torch",)),
    Area(
        "cli",
        "Command lines of applications",
        tuple(
            f"polyhal.cli.{n}"
            for n in ("chosen_devices", "completion", "display", "progress_bar", "reporting", "stop_request")
        ),
    ),
    Area(
        "contract",
        "The backend contract",
        tuple(
            f"{_HAL}.{n}"
            for n in (
                "protocol",
                "capabilities",
                "command_buffers",
                "graphs",
                "launch_descriptions",
                "peer_memory",
                "launch_resources",
                "device",
                "dtypes",
                "layout",
                "errors",
                "quantization.formats",
            )
        ),
    ),
    Area(
        "plugins",
        "Plug-ins, op declarations and the conformance kit",
        (f"{_HAL}.hookspecs", f"{_HAL}.ops", f"{_HAL}.testing", "polyhal.ops"),
    ),
)
