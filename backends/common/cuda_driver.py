"""NVIDIA's driver library (libcuda), which every driver installs: no toolkit is needed.

Functions are called through cffi. Source: CUDA Driver API, version 12.0.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import cffi

ffi = cffi.FFI()
ffi.cdef(
    """
    typedef int CUresult;
    typedef int CUdevice;
    typedef unsigned long long CUdeviceptr;
    typedef struct CUctx_st *CUcontext;
    typedef struct CUmod_st *CUmodule;
    typedef struct CUfunc_st *CUfunction;
    typedef struct CUstream_st *CUstream;
    typedef struct CUevent_st *CUevent;
    typedef struct CUgraph_st *CUgraph;
    typedef struct CUgraphNode_st *CUgraphNode;
    typedef struct CUgraphExec_st *CUgraphExec;
    typedef struct CUlinkState_st *CUlinkState;
    typedef struct CUmemPoolHandle_st *CUmemoryPool;
    typedef struct { int type; int id; } CUmemLocation;
    typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
    typedef struct {
        int type;
        int handle_types;
        CUmemLocation location;
        void *windows_metadata;
        unsigned char flags[8];
    } CUmemAllocationProp;

    CUresult cuInit(unsigned int flags);
    CUresult cuDriverGetVersion(int *version);
    CUresult cuGetErrorName(CUresult status, const char **name);
    CUresult cuGetErrorString(CUresult status, const char **text);

    CUresult cuDeviceGetCount(int *count);
    CUresult cuDeviceGet(CUdevice *device, int ordinal);
    CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *address);
    CUresult cuDeviceGetName(char *name, int length, CUdevice device);
    CUresult cuDeviceGetPCIBusId(char *address, int length, CUdevice device);
    CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
    CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
    CUresult cuDeviceCanAccessPeer(int *able, CUdevice device, CUdevice peer);

    CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
    CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
    CUresult cuCtxPushCurrent_v2(CUcontext context);
    CUresult cuCtxPopCurrent_v2(CUcontext *context);
    CUresult cuCtxGetCurrent(CUcontext *context);
    CUresult cuCtxSetCurrent(CUcontext context);
    CUresult cuCtxSynchronize(void);
    CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags);

    CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
    CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
    CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
    CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
    CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
    CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t kept);
    CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count);
    CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, int kind);
    CUresult cuMemCreate(
        unsigned long long *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags);
    CUresult cuMemRelease(unsigned long long handle);
    CUresult cuMemExportToShareableHandle(void *shareable, unsigned long long handle, int kind, unsigned long long flags);
    CUresult cuMemImportFromShareableHandle(unsigned long long *handle, void *shareable, int kind);
    CUresult cuMemAddressReserve(
        CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags);
    CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
    CUresult cuMemMap(
        CUdeviceptr address, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
    CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
    CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count);
    CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address);
    CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags);
    CUresult cuMemFreeHost(void *address);
    CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream stream);
    CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream stream);
    CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream);
    CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t bytes, CUstream stream);
    CUresult cuMemcpyPeerAsync(
        CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context, size_t bytes,
        CUstream stream);

    CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
    CUresult cuStreamDestroy_v2(CUstream stream);
    CUresult cuStreamSynchronize(CUstream stream);
    CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
    CUresult cuEventCreate(CUevent *event, unsigned int flags);
    CUresult cuEventRecord(CUevent event, CUstream stream);
    CUresult cuEventQuery(CUevent event);
    CUresult cuEventSynchronize(CUevent event);
    CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
    CUresult cuEventDestroy_v2(CUevent event);

    CUresult cuModuleLoadDataEx(
        CUmodule *module, const void *image, unsigned int options, int *names, void **values);
    CUresult cuModuleUnload(CUmodule module);
    CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
    CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
    CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
    CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
        int *blocks, CUfunction function, int threads, size_t dynamic_shared);
    CUresult cuLinkCreate_v2(unsigned int options, int *names, void **values, CUlinkState *state);
    CUresult cuLinkAddData_v2(
        CUlinkState state, int type, void *data, size_t size, const char *name, unsigned int options, int *names,
        void **values);
    CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *size);
    CUresult cuLinkDestroy(CUlinkState state);

    typedef struct { unsigned int x, y, z; } cluster_size;
    typedef union { char pad[64]; cluster_size cluster; int flag; } CUlaunchAttributeValue;
    typedef struct { int id; char pad[4]; CUlaunchAttributeValue value; } CUlaunchAttribute;
    typedef struct {
        unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
        CUstream stream;
        CUlaunchAttribute *attributes;
        unsigned int attribute_count;
    } CUlaunchConfig;
    CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);

    typedef struct {
        CUfunction function;
        unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
        void **parameters;
        void **extra;
        void *kernel;
        CUcontext context;
    } CUDA_KERNEL_NODE_PARAMS;
    CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);
    CUresult cuGraphAddKernelNode_v2(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        const CUDA_KERNEL_NODE_PARAMS *params);
    typedef struct { unsigned char from_port, to_port, type, reserved[5]; } CUgraphEdgeData;
    CUresult cuGraphAddDependencies_v2(
        CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count);
    CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const CUlaunchAttributeValue *value);
    CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
    CUresult cuGraphExecKernelNodeSetParams_v2(
        CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params);
    CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);
    CUresult cuGraphExecDestroy(CUgraphExec executable);
    CUresult cuGraphDestroy(CUgraph graph);
    """
)

NULL = ffi.NULL
OUT_OF_MEMORY, NOT_READY, PEER_ACCESS_ALREADY_ENABLED = 2, 600, 704
"""Statuses."""
OLDEST = 12000
"""Oldest version of the driver's interface with all functions except `cuGraphAddDependencies_v2`: 1000 major + 10 minor."""
WITH_EDGES = 12030
"""Oldest version with `cuGraphAddDependencies_v2`."""


class CudaError(Exception):
    """A failed call of the driver."""

    def __init__(self, function: str, status: int, name: str, text: str) -> None:
        super().__init__(f"{function} failed with {name}: {text}")
        self.function = function
        self.status = status
        self.name = name
        self.text = text


class CudaDriver:
    """The functions of the driver library. `lib` has one attribute per function, which returns a status."""

    def __init__(self, lib: Any) -> None:
        """Initialize the driver. Raises CudaError, also if the driver is older than `OLDEST`."""
        self.lib = lib
        self.call("cuInit", 0)
        self.version = self.value("cuDriverGetVersion", "int *")
        if self.version < OLDEST:
            needed = f"CUDA {OLDEST // 1000}.{OLDEST % 1000 // 10}"
            raise CudaError("cuDriverGetVersion", 0, str(self.version), f"the driver is too old, {needed} is needed")

    def call(self, name: str, *args: Any) -> None:
        """Call a function. Raises CudaError for any status but success."""
        status = getattr(self.lib, name)(*args)
        if status:
            raise self.error(name, status)

    def value(self, name: str, kind: str, *args: Any) -> Any:
        """Call a function whose first parameter is a pointer of the type `kind` to its result. Return the result."""
        out = ffi.new(kind)
        self.call(name, out, *args)
        return out[0]

    def error(self, function: str, status: int) -> CudaError:
        """Return the error for a status."""
        words = []
        for query in ("cuGetErrorName", "cuGetErrorString"):
            out = ffi.new("const char **")
            known = not getattr(self.lib, query)(status, out) and out[0] != NULL
            words.append(ffi.string(out[0]).decode() if known else f"status {status}")
        return CudaError(function, status, *words)

    def text(self, name: str, length: int, device: int) -> str:
        """Call a function that writes a string about a device. Return the string."""
        out = ffi.new("char[]", length)
        self.call(name, out, length, device)
        return bytes(ffi.string(out)).decode(errors="replace")

    def status(self, name: str, *args: Any) -> int:
        """Call a function and return its status."""
        return int(getattr(self.lib, name)(*args))

    def attribute(self, attribute: int, device: int) -> int:
        """Return an attribute of a device."""
        return int(self.value("cuDeviceGetAttribute", "int *", attribute, device))


LIBRARIES: Sequence[str] = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1",)
"""File names of the library."""


@functools.cache
def cuda_driver() -> CudaDriver:
    """Return the driver of this machine. Raises OSError without the library, and CudaError if it does not work."""
    problem: OSError | None = None
    for name in LIBRARIES:
        try:
            return CudaDriver(ffi.dlopen(name))
        except OSError as error:
            problem = error
    assert problem is not None
    raise problem
