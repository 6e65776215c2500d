/* The functions of OpenCL 1.2 that a step needs, found at run time: no header and no library of OpenCL is needed to build.
 *
 * Source of names, types and numbers: The OpenCL Specification 1.2 and its registry.
 */
#ifndef POLYHAL_OPENCL_H
#define POLYHAL_OPENCL_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define POLYHAL_CL_CALL __stdcall
#else
#define POLYHAL_CL_CALL
#endif

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bitfield;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_PLATFORM_NOT_FOUND_KHR = -1001,

    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_TRUE = 1
};
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu
#define CL_MEM_READ_WRITE 1u

/* Every function: return type, name without `cl`, parameters. */
#define POLYHAL_CL_FUNCTIONS(F)                                                                                          \
    F(cl_int, GetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                                                    \
    F(cl_int, GetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *))                                      \
    F(cl_int, GetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))                           \
    F(cl_int, GetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                                          \
    F(cl_context, CreateContext,                                                                                         \
      (const intptr_t *, cl_uint, const cl_device_id *, void (*)(const char *, const void *, size_t, void *), void *,    \
       cl_int *))                                                                                                        \
    F(cl_int, ReleaseContext, (cl_context))                                                                              \
    F(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *))                           \
    F(cl_int, ReleaseCommandQueue, (cl_command_queue))                                                                   \
    F(cl_mem, CreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                                         \
    F(cl_int, ReleaseMemObject, (cl_mem))                                                                                \
    F(cl_program, CreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *))               \
    F(cl_program, CreateProgramWithBinary,                                                                               \
      (cl_context, cl_uint, const cl_device_id *, const size_t *, const unsigned char **, cl_int *, cl_int *))           \
    F(cl_int, GetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                                           \
    F(cl_int, BuildProgram,                                                                                              \
      (cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *), void *))                   \
    F(cl_int, GetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))                        \
    F(cl_int, ReleaseProgram, (cl_program))                                                                              \
    F(cl_kernel, CreateKernel, (cl_program, const char *, cl_int *))                                                     \
    F(cl_int, SetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                                                  \
    F(cl_int, ReleaseKernel, (cl_kernel))                                                                                \
    F(cl_int, EnqueueNDRangeKernel,                                                                                      \
      (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint, const cl_event *,  \
       cl_event *))                                                                                                      \
    F(cl_int, EnqueueReadBuffer,                                                                                         \
      (cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))                \
    F(cl_int, EnqueueWriteBuffer,                                                                                        \
      (cl_command_queue, cl_mem, cl_uint, size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *))          \
    F(cl_int, Flush, (cl_command_queue))                                                                                 \
    F(cl_int, Finish, (cl_command_queue))

/* The loader: `cl.Finish(queue)` calls clFinish. */
typedef struct polyhal_opencl {
    void *library;
#define POLYHAL_CL_MEMBER(result, name, parameters) result(POLYHAL_CL_CALL *name) parameters;
    POLYHAL_CL_FUNCTIONS(POLYHAL_CL_MEMBER)
#undef POLYHAL_CL_MEMBER
} polyhal_opencl;

/* Open a library, the system's loader if `file` is NULL. Returns NULL, or the name of a missing function or library. */
const char *polyhal_opencl_open(polyhal_opencl *cl, const char *file);

/* Return the name of an error, such as CL_INVALID_WORK_GROUP_SIZE. */
const char *polyhal_opencl_error(cl_int status);

#endif
