"""Workarounds for OpenCL drivers: the only file of this backend that identifies a driver by name.

To add one, declare a field here and test it where it applies: `features.quirks.NAME` in Python, `#if QUIRK_NAME` in a
kernel (see docs/quirks.md). A vendor profile may set it too, under `[quirks]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.quirks import DriverId, match_quirks, quirk

PLATFORM_ALIASES = {"pocl": "portable computing language"}
"""Short names of platforms, as in `Device("opencl:pocl")`."""


def _pocl(driver: DriverId) -> bool:
    return "portable computing language" in driver.platform.lower()


def _oclgrind(driver: DriverId) -> bool:
    """Return whether a driver is Oclgrind, an interpreter that finds data races and invalid accesses; used by the tests."""
    return "oclgrind" in driver.platform.lower()


def _intel_cpu(driver: DriverId) -> bool:
    return driver.cpu and driver.platform.startswith("Intel")


def _mesa(driver: DriverId) -> bool:
    """Return whether a driver is rusticl, Mesa's newer driver."""
    return driver.platform.lower() == "rusticl"


def _clover(driver: DriverId) -> bool:
    """Return whether a driver is clover, Mesa's older driver."""
    return driver.platform.lower() == "clover"


def _nvidia(driver: DriverId) -> bool:
    return driver.platform.startswith("NVIDIA")


@dataclass(frozen=True, slots=True)
class DriverQuirks:
    """The workarounds for one driver. All are off by default."""

    try_compiler: bool = quirk(
        lambda d: _pocl(d) or _mesa(d),
        reason="it lists a device even if its compiler refuses every kernel, because it is older than the processor or "
        "lacks headers from another package",
        evidence="PoCL 3.0-rc2 with LLVM 14 on Zen 5: \"error: unknown target CPU 'generic'\" after 5 ms; on Zen 4, at "
        'vload_half16: "LLVM ERROR: Do not know how to split this operator\'s operand!", which ends the process, or no result '
        "within a minute; PoCL 3.1 compiles a trivial kernel there in 0.15 s; Mesa 22.3 rusticl without Debian's "
        "libclang-common-15-dev: \"'opencl-c-base.h' file not found\"",
        link="https://github.com/pocl/pocl/issues/1049",
    )
    devices_on_request: bool = quirk(
        _mesa,
        reason="it only lists devices of drivers that an environment variable enables",
        evidence="Mesa 22.3 rusticl with RUSTICL_ENABLE unset: a platform without devices",
        link="https://docs.mesa3d.org/rusticl.html",
    )
    replaced: bool = quirk(
        _clover,
        reason="it supports only OpenCL 1.1, and Mesa has replaced it by rusticl",
        evidence="Mesa 22.3 clover: `OpenCL 1.1 Mesa 22.3.6`",
        link="https://docs.mesa3d.org/rusticl.html",
    )
    skip_binary_cache: bool = quirk(
        lambda d: _pocl(d) or _oclgrind(d),
        reason="caching compiled programs is not worthwhile: PoCL caches them itself, and its binaries hold kernels for any "
        "work-group size, which it compiles in addition to the kernels that it launches; Oclgrind interprets programs",
        evidence="PoCL 3.1, 19 programs of a small model: querying the binaries makes the first process take 18.3 s of "
        "processor time instead of 11.6 s, and saves each later process 0.45 s of 1.7 s",
        link="https://github.com/inducer/pyopencl/issues/731",
    )
    parses_all_builtins: bool = quirk(
        _pocl,
        reason="it parses a header with all built-in functions for each program; programs declare the ones that they call",
        evidence="PoCL 3.1: a program of one line is built in 71 ms of processor time, and in 11 ms without the header; the 50 "
        "programs of the first steps of two small models in 4.9 s and 1.9 s",
        link="https://github.com/pocl/pocl/blob/main/include/_clang_opencl.h",
    )
    assume_unified_memory: bool = quirk(
        _oclgrind,
        reason="it reports separate device memory, although it runs in the host's process, and scans all allocated memory "
        "after each kernel, above all the pinned staging buffers",
        evidence="Oclgrind 21.10: without staging buffers the conformance kit takes two thirds of the time",
        link="https://github.com/jrprice/Oclgrind",
    )
    builtin_prefetch: bool = quirk(
        lambda d: _pocl(d) or _intel_cpu(d),
        reason="OpenCL's prefetch is a no-op, but the compiler's __builtin_prefetch works; other drivers may have the "
        "built-in function and end the process when they compile it, so that no program can test for it safely",
        evidence="PoCL 3.1 and Intel CPU runtime 2026.2: prefetch of a line 2 KiB ahead becomes no instruction, with Intel's a "
        "call as well; Mesa 22.3 rusticl on llvmpipe ends with `Unexpected llvm intrinsic: llvm.prefetch`, Oclgrind 21.10 "
        "finds no kernel in the program",
        link="https://github.com/jrprice/Oclgrind/issues/205",
    )
    polynomial_exp: bool = quirk(
        _pocl,
        reason="exp of a vector is computed element by element",
        evidence="PoCL 3.0 on hosts where its exp is not inlined; on a Xeon with AVX-512 and clwb there was no difference",
        link="https://github.com/pocl/pocl/pull/2320",
    )
    operators_for_builtins: bool = quirk(
        _pocl,
        reason="the library of built-in functions is compiled per family of processors and not inlined on a host that lacks "
        "any feature of its family; around each call all vector registers are saved",
        evidence="PoCL 3.0: without operators the fused gelu of four million elements takes twice as long on such a host, and "
        "1.3 times as long on a Xeon whose features the library matches",
        link="https://github.com/pocl/pocl/pull/539",
    )
    target_clwb: bool = quirk(
        _pocl,
        reason="its built-in functions are compiled for Skylake with AVX-512, which has the instruction clwb; for a newer "
        "processor without clwb none of them is inlined, so that min, vload and vstore become calls",
        evidence="PoCL 3.0 on processors with AVX-512 and without clwb: all vector registers are spilled around each call",
        link="https://github.com/archspec/archspec-json/pull/12",
    )
    scalar_fmod: bool = quirk(
        _pocl,
        reason="fmod of a vector of doubles returns wrong elements if another one is zero, infinite or NaN, and is "
        "extremely slow for large quotients",
        evidence="PoCL 3.0-rc2 with SLEEF: 233 of 4096 elements wrong, quotients below 100; no result within a minute for "
        "quotients of a million",
    )
    scalar_pow: bool = quirk(
        _pocl,
        reason="pow of a vector of doubles returns wrong elements if another one is zero, infinite, NaN or subnormal",
        evidence="PoCL 3.0-rc2 with SLEEF on a processor with AVX-512: in vectors of 8 whose other elements are 0, 56 of 300 "
        "squares were infinite; with a subnormal number among them all were wrong; vectors of 4 were right",
    )
    aligned_half_conversion: bool = quirk(
        _pocl,
        reason="vload_half and vstore_half of vectors are compiled for memory aligned to the vector, although OpenCL "
        "requires only the alignment of one half",
        evidence="PoCL 3.0-rc2 on processors with F16C: its vload_half16 is `load <8 x half>, align 16`; relu_grad of a slice "
        "that begins at an odd element ended the process by a segmentation fault",
    )
    pin_workers: bool = quirk(
        _pocl,
        reason="its worker threads are not bound to cores, and some systems run two of them on one core while another is idle",
        evidence="PoCL 3.0 in a virtual machine with two cores: a product of two 256 x 256 matrices takes 1.7 times as long",
        link="https://portablecl.org/docs/html/env_variables.html",
    )
    pin_waiting_thread: bool = quirk(
        _intel_cpu,
        reason="the waiting thread executes kernels too, on the core without a worker, but is not bound to it; while no "
        "thread waits, one core is idle",
        evidence="Intel CPU runtime 2026.2 on two cores: a training step of 5 ms takes 9 if the thread shares a worker's core, "
        "and 1.7 times as long if the host runs ahead instead of waiting",
        link="https://www.intel.com/content/www/us/en/docs/oneapi/programming-guide/2023-1/"
        "control-binary-execution-on-multiple-cpu-cores.html",
    )
    split_by_names: bool = quirk(
        _intel_cpu,
        reason="of sub-devices of one core that were split by counts, the first runs in the waiting thread and in a worker, "
        "the others only in a worker; split by the names of their cores, all run in both",
        evidence="Intel CPU runtime 2026.2 on two cores: two kernels of 39 ms on one core take 39 and 58 ms when they run "
        "concurrently on halves by counts, and 32 to 50 ms, 39 on average, on halves by names",
        link="https://registry.khronos.org/OpenCL/extensions/intel/cl_intel_device_partition_by_names.txt",
    )
    run_loaded_binaries: bool = quirk(
        _intel_cpu,
        reason="a program built from source keeps the compiler's data for its lifetime; a program loaded from its binary "
        "does not",
        evidence="Intel CPU runtime 2026.2: 100 programs of three lines take 249 MB of memory, and 49 MB when they are loaded",
    )
    many_work_items: bool = quirk(
        lambda d: d.cpu and _mesa(d),
        reason="a loop ends without an error after 65535 iterations, those of inner loops included, and kernels for CPUs have "
        "few work-items with long loops; kernels for GPUs are used instead",
        evidence="Mesa 22.3 rusticl on llvmpipe: in a product of two 300 x 300 matrices the last passes over terms are "
        "missing; in kernels for GPUs, with local memory, products of a million terms are right",
        link="https://gitlab.freedesktop.org/mesa/mesa/-/blob/main/src/gallium/auxiliary/gallivm/lp_bld_limits.h",
    )
    group_limit_is_advice: bool = quirk(
        lambda d: _nvidia(d) or (_mesa(d) and d.before(23, 2)),
        reason="it reports a maximum group size below the sizes in which kernels actually run",
        evidence="NVIDIA driver 580 on an H200 reports 256: convolutions on tensor cores and gradients of softmax run in "
        "groups of 384 to 1024 work-items; Mesa 22.3 rusticl on llvmpipe reports 32, and groups of 1024 with barriers work",
    )
    ptx_half_conversion: bool = quirk(
        _nvidia,
        reason="vloada_half and vstorea_half move and convert halves one by one",
        evidence="NVIDIA driver 580: the PTX of a vector of eight halves has eight loads of 16 bits instead of one of 128",
    )


def match(platform: str, driver: str, device: str, *, cpu: bool) -> DriverQuirks:
    """Return the workarounds for a driver, given the names of its platform and device and the driver's version."""
    return match_quirks(DriverQuirks, DriverId(platform, driver, device, cpu))
