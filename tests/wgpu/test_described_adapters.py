"""Described adapters: their properties and limits, and the lowering of all ops and training steps for each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from translation_figures import train

import polyhal
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.wgpu.described import description
from polyhal.backends.wgpu.described.backend import WGPUDescribedBackend
from polyhal.backends.wgpu.described.description import DescribedAdapter
from polyhal.backends.wgpu.described.noted_shader import NotedShader
from polyhal.backends.wgpu.parameter_ring import MAX_PARAMETER_WORDS
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, DeviceUnavailableError, KernelBuildError, OutOfMemoryError
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.system.diagnostics.explain_op import explain
from polyhal.hal.system.discovery.registry import registry
from polyhal.hal.testing.tuning.kernel_check import lower_samples, ops_by_kernel

pytestmark = pytest.mark.slow

KEYS = description.known()
EXPECTED = {
    # 64-bit integers, half precision, storage buffers
    "webgpu": (False, False, 8),
    "webgpu-int64": (True, False, 8),
    "webgpu-compat": (False, False, 8),
    "m1-metal": (True, True, 8),
    "uhd630-d3d12": (True, True, 16),
    "uhd630-vulkan": (True, True, 64),
    "rx6800-vulkan": (True, True, 1048576),
    "malig78-vulkan": (True, True, 35),
    "adreno730-vulkan": (True, True, 1048576),
    "pi4-vulkan": (False, False, 8),
}
DEFAULTS = description.load("webgpu").adapter.limits


def opened(key: str) -> tuple[Device, WGPUDescribedBackend]:
    """Open a described device for this test only."""
    return opened_as(description.load(key))


def opened_as(described: description.AdapterDescription) -> tuple[Device, WGPUDescribedBackend]:
    backend = WGPUDescribedBackend(described)
    return Device.opened(f"described:{described.key}", backend), backend


def limited(**limits: int) -> description.AdapterDescription:
    """Return an adapter with changed limits, by their names with `_`."""
    found = description.load("webgpu-int64")
    changed = {name.replace("_", "-"): value for name, value in limits.items()}
    return replace(
        found, adapter=DescribedAdapter(found.adapter.info, found.adapter.features, {**found.adapter.limits, **changed})
    )


def violations(backend: WGPUDescribedBackend) -> list[str]:
    """Return the unmet requirements of all shaders so far. Lowering may have caught the error."""
    adapter = backend.description.adapter
    return [f"{s.file}: {v}" for s in backend.kernels.shaders for v in s.violations(adapter.features, adapter.limits)]


@pytest.mark.parametrize("key", KEYS)
def test_descriptions_are_consistent(key: str) -> None:
    described, backend = description.load(key), opened(key)[1]
    int64, float16, buffers = EXPECTED[key]
    features, limits = backend.features, described.adapter.limits
    assert (features.int64, features.float16, features.max_buffers) == (int64, float16, buffers)
    assert backend.info.type == described.card.type
    assert bool(features.immediates) == ("immediates" in described.adapter.features)
    assert polyhal.int64 in backend.capabilities.storage or not int64
    smaller = (
        {"max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x"} if key == "webgpu-compat" else set()
    )
    assert {name for name, least in DEFAULTS.items() if limits[name] < least} == smaller


@pytest.mark.parametrize(
    ("name", "vendor_id", "sizes"),
    [
        ("Apple M1", 0, (32, 32)),
        ("AMD Radeon Pro 5500M", 0, (32, 64)),
        ("Intel(R) UHD Graphics 630", 0, (8, 32)),
        ("Apple M1", 0x8086, (8, 32)),
        ("Pineapple", 0, (4, 128)),
        ("", 0, (4, 128)),
    ],
)
def test_subgroup_sizes_follow_from_the_vendor_id_or_on_metal_from_the_name(
    name: str, vendor_id: int, sizes: tuple[int, int]
) -> None:
    metal = description.load("m1-metal")
    about = {**metal.adapter.info, "device": name, "vendor_id": vendor_id}
    found = WGPUDescribedBackend(replace(metal, adapter=replace(metal.adapter, info=about)))
    assert found.features.subgroup_sizes == sizes


@pytest.mark.parametrize("key", KEYS)
def test_training_steps_lower_within_the_limits(key: str) -> None:
    device, backend = opened(key)
    train(backend, device)
    used = {"gemm", "conv", "reduction", "rowwise", "pointwise"}
    used |= {"attention", "gather", "optim"} if EXPECTED[key][0] else set()
    assert {shader.file.partition("/")[0] for shader in backend.kernels.shaders} >= used
    assert violations(backend) == []


@pytest.mark.parametrize("key", KEYS)
def test_all_ops_lower_within_the_limits(key: str) -> None:
    device, backend = opened(key)
    for op in OPS:
        lower_samples(device, op)
    assert len({shader.file for shader in backend.kernels.shaders}) > 25
    assert violations(backend) == []


@pytest.mark.parametrize(
    ("limit", "value", "op", "said"),
    [
        (
            "max_compute_workgroup_storage_size",
            64,
            "matmul",
            "bytes of workgroup memory, above the adapter's limit of 64",
        ),
        ("max_storage_buffers_per_shader_stage", 2, "matmul", "3 storage buffers, above the adapter's limit of 2"),
        ("max_compute_workgroup_size_x", 32, "matmul", "per axis"),
    ],
)
def test_a_launch_beyond_the_limits_is_refused(limit: str, value: int, op: str, said: str) -> None:
    device, backend = opened_as(limited(**{limit: value}))
    with pytest.raises(KernelBuildError, match=said):
        lower_samples(device, OPS[op])
    assert any(said in v for v in violations(backend))


def test_causal_attention_of_other_lengths_needs_no_64_bit_integers() -> None:
    device, backend = opened("webgpu")
    query, key = (polyhal.zeros((1, 2, n, 8), device=device) for n in (5, 7))
    for dropout in (0.0, 0.5):
        polyhal.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=True, dropout_p=dropout)
    assert violations(backend) == []


def test_groups_of_a_launch_are_spread_over_two_axes_of_limited_length() -> None:
    _, backend = opened("webgpu-int64")
    assert backend.runtime.spread(65535) == (65535, 1)
    assert backend.runtime.spread(65536) == (32768, 2)
    args: Arguments = {"words": Workspace(0), "word": 0, "mask": 0, "bits": 0}
    with pytest.raises(KernelBuildError, match=r"\(65535, 65538\) groups, above the adapter's limit of 65535 per axis"):
        backend.runtime.launch("lib/patch", {}, args, 1 << 32)
    with pytest.raises(
        KernelBuildError, match="a workspace of 134217729 bytes, above the maximum binding size of 134217728"
    ):
        backend.runtime.launch("lib/patch", {}, args, 1, workspace=((128 << 20) + 1,))


def test_an_operand_that_no_binding_can_hold_is_refused_when_it_is_launched() -> None:
    _, backend = opened("webgpu-int64")
    sizes = (
        "rows",
        "columns",
        "source_step",
        "target_step",
        "batch1",
        "source0",
        "source1",
        "target0",
        "target1",
        "tiles",
    )
    args: Arguments = {"src": Tensor(0), "dest": Tensor(1), **dict.fromkeys(sizes, 1)}
    launch = backend.runtime.launch("pointwise/transpose_local", {}, args, 1)
    most = 128 << 18  # elements of four bytes in 128 MiB
    memory = backend.allocate(4 * (most + 64))
    fitting, other = (Ref(memory, contiguous(polyhal.float32, (most,)), 64 * i) for i in (1, 0))
    launch(fitting, other)
    with pytest.raises(BackendError, match="an operand spans 128 MiB of one buffer; expected at most 128 MiB"):
        launch(Ref(memory, contiguous(polyhal.float32, (most,)), 1), other)


@pytest.mark.parametrize(
    ("declared", "nbytes"),
    [
        ("array<vec4<f32>, 100>", 1600),
        ("array<atomic<u32>, 3>", 16),
        ("array<f16, 7>", 16),
        ("array<V, 2>", 32),
        ("array<vec3<f32>, 2>", 32),
        ("u64", 16),
        ("array<array<u32, 4>, 2>", 32),
    ],
)
def test_workgroup_memory_is_read_from_the_text(declared: str, nbytes: int) -> None:
    text = f"alias V = vec4<f32>;\nvar<workgroup> x: {declared};\n@compute @workgroup_size(8, 4) fn main() {{}}"
    shader = NotedShader("a.wgsl", "a", (), text, 0, 0)
    assert (shader.workgroup_memory, shader.group) == (nbytes, (8, 4))


@pytest.mark.parametrize(
    ("code", "feature"),
    [
        ("enable f16;", "shader-f16"),
        ("let x: i64 = 1li;", "shader-int64"),
        ("let x = y + 3lu;", "shader-int64"),
        ("x: atomic<f32>,", "shader-float32-atomic"),
        ("let s = subgroupAdd(x);", "subgroup"),
        ("var<immediate> p: P;", "immediates"),
    ],
)
def test_features_are_read_from_the_text(code: str, feature: str) -> None:
    shader = NotedShader("a.wgsl", "a", (), f"{code}\n@compute @workgroup_size(8) fn main() {{}}", 0, 0)
    assert list(shader.violations((), DEFAULTS)) == [f"the feature {feature}, which the adapter lacks"]
    assert list(shader.violations((feature,), {**DEFAULTS, "max-immediate-size": 4})) == []


def test_parameters_are_limited() -> None:
    shader = NotedShader("a.wgsl", "a", (), "@compute @workgroup_size(8) fn main() {}", 0, 4 * MAX_PARAMETER_WORDS + 4)
    assert list(shader.violations((), DEFAULTS)) == ["1028 bytes of parameters, above a launch's limit of 1024"]


@pytest.mark.parametrize("text", ["fn main() {}", "@workgroup_size(N) fn main() {}"])
def test_a_shader_without_the_size_of_its_groups_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no @workgroup_size with literal numbers"):
        _ = NotedShader("a.wgsl", "a", (), text, 0, 0).group
    with pytest.raises(ValueError, match="unknown type mat2x2<f32> of a variable"):
        _ = NotedShader("a.wgsl", "a", (), "var<workgroup> x: mat2x2<f32>;", 0, 0).workgroup_memory


def test_in_place_updates_use_the_read_write_variant() -> None:
    device, backend = opened("rx6800-vulkan")
    x = polyhal.zeros((64,), device=device)
    before = len(backend.kernels.shaders)
    x += 1
    texts = [s.text for s in backend.kernels.shaders[before:]]
    assert any("binding(0) var<storage, read_write> a0" in text for text in texts)


def test_values_are_zeros_and_memory_is_limited_by_the_largest_buffer() -> None:
    device, backend = opened("webgpu-int64")
    with pytest.warns(UserWarning, match="only described and computes nothing"):
        assert not polyhal.tensor(np.ones(3, np.float32), device=device).numpy().any()
    with pytest.raises(OutOfMemoryError, match=f"expected at most {256 << 20} in one piece"):
        backend.allocate((256 << 20) + 1)


def test_described_adapters_of_wgpu_and_opencl_are_opened_by_name() -> None:
    listed = {c.name for c in registry().candidates(hidden=True) if c.backend.name == "described"}
    assert {f"described:{key}" for key in KEYS} | {"described:rx6800"} <= listed
    assert Device("described:m1-metal").info.name == "Apple M1, Metal (described)"
    with pytest.raises(DeviceUnavailableError, match=r"unknown card 'rx9'; expected .*rx6800, rx7900"):
        Device("described:rx9")


def test_explain_and_the_list_of_kernels_show_shaders() -> None:
    assert "rowwise_softmax" in str(explain("softmax", "described:m1-metal"))
    files = ops_by_kernel(Device("described:m1-metal"))
    assert "softmax" in files["rowwise/softmax.wgsl"]
    assert "softmax" in files["lib/storage.wgsl"]
