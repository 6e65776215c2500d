/* Opens the OpenCL loader and finds its functions. */
#include "polyhal_opencl.h"

#include <string.h>

#if defined(_WIN32)
#include <windows.h>
static void *open_library(const char *file) { return (void *)LoadLibraryA(file); }
static void find(void *library, const char *name, void *function) {
    FARPROC found = GetProcAddress((HMODULE)library, name);
    memcpy(function, &found, sizeof found);
}
static const char *const LOADERS[] = {"OpenCL.dll"};
#else
#include <dlfcn.h>
static void *open_library(const char *file) { return dlopen(file, RTLD_NOW | RTLD_LOCAL); }
/* Through memory, because ISO C has no conversion from a pointer to an object to a pointer to a function. */
static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}
#if defined(__APPLE__)
static const char *const LOADERS[] = {"/System/Library/Frameworks/OpenCL.framework/OpenCL"};
#else
static const char *const LOADERS[] = {"libOpenCL.so.1", "libOpenCL.so", "libOpenCL.so.1.0.0"};
#endif
#endif

const char *polyhal_opencl_open(polyhal_opencl *cl, const char *file) {
    size_t i;
    memset(cl, 0, sizeof *cl);
    if (file != NULL) {
        cl->library = open_library(file);
        if (cl->library == NULL) return file;
    }
    for (i = 0; cl->library == NULL && i < sizeof LOADERS / sizeof LOADERS[0]; i++) cl->library = open_library(LOADERS[i]);
    if (cl->library == NULL) return LOADERS[0];
    /* The library stays open: drivers have threads that outlive a step. */
#define POLYHAL_CL_FIND(result, name, parameters)                                                                        \
    find(cl->library, "cl" #name, &cl->name);                                                                            \
    if (cl->name == NULL) return "cl" #name;
    POLYHAL_CL_FUNCTIONS(POLYHAL_CL_FIND)
#undef POLYHAL_CL_FIND
    return NULL;
}

typedef struct named_error {
    cl_int status;
    const char *name;
} named_error;

static const named_error ERRORS[] = {
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-30, "CL_INVALID_VALUE"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-43, "CL_INVALID_BUILD_OPTIONS"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

const char *polyhal_opencl_error(cl_int status) {
    size_t i;
    for (i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++) {
        if (ERRORS[i].status == status) return ERRORS[i].name;
    }
    return "an error";
}
