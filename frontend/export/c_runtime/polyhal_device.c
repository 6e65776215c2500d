/* Chooses the device, and checks that it fulfils the requirements of the kernels. */
#include "polyhal_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PLATFORMS 32
#define MOST_DEVICES 64

typedef struct found_device {
    cl_device_id id;
    char platform[256];
    char name[256];
    char driver[256];
} found_device;

static void device_text(const polyhal_opencl *cl, cl_device_id id, cl_uint what, char *text, size_t size) {
    text[0] = '\0';
    if (cl->GetDeviceInfo(id, what, size, text, NULL) != CL_SUCCESS) text[0] = '\0';
    text[size - 1] = '\0';
}

/* Collect the devices of all platforms. A platform that fails has none. */
static cl_uint find_devices(const polyhal_opencl *cl, found_device *found, cl_uint most) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint platform_count = 0, count = 0, p, d;
    if (cl->GetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count) != CL_SUCCESS) return 0;
    if (platform_count > MOST_PLATFORMS) platform_count = MOST_PLATFORMS;
    for (p = 0; p < platform_count; p++) {
        cl_device_id devices[MOST_DEVICES];
        cl_uint device_count = 0;
        if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST_DEVICES, devices, &device_count) != CL_SUCCESS) {
            continue;
        }
        if (device_count > MOST_DEVICES) device_count = MOST_DEVICES;
        for (d = 0; d < device_count && count < most; d++, count++) {
            found_device *one = &found[count];
            one->id = devices[d];
            one->platform[0] = '\0';
            if (cl->GetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof one->platform, one->platform, NULL) !=
                CL_SUCCESS) {
                one->platform[0] = '\0';
            }
            device_text(cl, devices[d], CL_DEVICE_NAME, one->name, sizeof one->name);
            device_text(cl, devices[d], CL_DRIVER_VERSION, one->driver, sizeof one->driver);
        }
    }
    return count;
}

static int is_of_export(const polyhal_program *program, const found_device *one) {
    return strcmp(one->platform, program->platform) == 0 && strcmp(one->name, program->device) == 0;
}

/* Write "PLATFORM / DEVICE; ..." of all devices. */
static void list_devices(const found_device *found, cl_uint count, char *text, size_t size) {
    size_t used = 0;
    cl_uint i;
    (void)snprintf(text, size, "none");
    for (i = 0; i < count && used + 1 < size; i++) {
        int written = snprintf(text + used, size - used, "%s%s / %s", i ? "; " : "", found[i].platform, found[i].name);
        if (written < 0) return;
        used += (size_t)written;
    }
}

static int choose(polyhal_step *step, const polyhal_options *options, const found_device *found, cl_uint count,
                  found_device *chosen) {
    const polyhal_program *program = step->program;
    char listed[2048], both[520];
    cl_uint i, fitting = count;
    for (i = 0; i < count; i++) {
        (void)snprintf(both, sizeof both, "%s / %s", found[i].platform, found[i].name);
        if (options->device != NULL ? strstr(both, options->device) == NULL
                                    : !options->any_device && !is_of_export(program, &found[i])) {
            continue;
        }
        if (fitting == count || (is_of_export(program, &found[i]) && !is_of_export(program, &found[fitting]))) fitting = i;
    }
    list_devices(found, count, listed, sizeof listed);
    if (fitting == count && options->device != NULL) {
        return polyhal_fail(step, POLYHAL_NO_DEVICE, "no OpenCL device is named \"%s\"; the devices are: %s", options->device,
                            listed);
    }
    if (fitting == count) {
        return polyhal_fail(step, count == 0 ? POLYHAL_NO_DEVICE : POLYHAL_OTHER_DEVICE,
                            "the step was exported for \"%s / %s\"; the OpenCL devices of this machine are: %s; export it on "
                            "the device that runs it, or allow any device",
                            program->platform, program->device, listed);
    }
    *chosen = found[fitting];
    if (!options->any_device && !is_of_export(program, chosen)) {
        return polyhal_fail(step, POLYHAL_OTHER_DEVICE,
                            "\"%s / %s\" is not the device of the export, \"%s / %s\": its kernels and their sizes were chosen "
                            "for that device; export it on the device that runs it, or allow any device",
                            chosen->platform, chosen->name, program->platform, program->device);
    }
    return POLYHAL_OK;
}

/* Fail for the first extension in a list separated by spaces that the device lacks. */
static int check_extensions(polyhal_step *step, const char *needed) {
    size_t size = 0;
    char *offered;
    int code = POLYHAL_OK;
    if (*needed == '\0') return POLYHAL_OK;
    if (step->cl.GetDeviceInfo(step->device, CL_DEVICE_EXTENSIONS, 0, NULL, &size) != CL_SUCCESS) size = 0;
    offered = calloc(size + 3, 1);
    if (offered == NULL) return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for the list of extensions");
    offered[0] = ' ';
    if (size > 0 && step->cl.GetDeviceInfo(step->device, CL_DEVICE_EXTENSIONS, size, offered + 1, NULL) != CL_SUCCESS) {
        offered[1] = '\0';
    }
    offered[strlen(offered)] = ' ';
    while (*needed != '\0' && code == POLYHAL_OK) {
        char one[128];
        size_t length = strcspn(needed, " ");
        (void)snprintf(one, sizeof one, " %.*s ", (int)(length < 120 ? length : 120), needed);
        if (strstr(offered, one) == NULL) {
            code = polyhal_fail(step, POLYHAL_OTHER_DEVICE, "%s lacks the extension%s", step->device_text, one);
        }
        needed += length;
        while (*needed == ' ') needed++;
    }
    free(offered);
    return code;
}

static int check_limits(polyhal_step *step) {
    const polyhal_program *program = step->program;
    size_t group = 0;
    uint64_t local = 0;
    (void)step->cl.GetDeviceInfo(step->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL);
    if (group < program->largest_group) {
        return polyhal_fail(step, POLYHAL_OTHER_DEVICE, "%s runs groups of at most %lu work-items; the step has groups of %lu",
                            step->device_text, (unsigned long)group, (unsigned long)program->largest_group);
    }
    (void)step->cl.GetDeviceInfo(step->device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    if (local < program->local_bytes) {
        return polyhal_fail(step, POLYHAL_OTHER_DEVICE, "%s has %lu bytes of local memory; the step needs %lu",
                            step->device_text, (unsigned long)local, (unsigned long)program->local_bytes);
    }
    return check_extensions(step, program->extensions);
}

int polyhal_open_device(polyhal_step *step, const polyhal_options *options) {
    const char *library = options->library != NULL ? options->library : getenv("POLYHAL_OPENCL_LIBRARY");
    const char *missing = polyhal_opencl_open(&step->cl, library);
    found_device *found, chosen;
    cl_uint count;
    cl_int status = CL_SUCCESS;
    int code;
    if (missing != NULL) {
        return polyhal_fail(step, POLYHAL_NO_OPENCL,
                            "%s cannot be loaded: install an OpenCL driver and its loader (Debian: ocl-icd-libopencl1), or name "
                            "the loader's file in POLYHAL_OPENCL_LIBRARY",
                            missing);
    }
    found = calloc(MOST_DEVICES, sizeof *found);
    if (found == NULL) return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for the list of devices");
    count = find_devices(&step->cl, found, MOST_DEVICES);
    code = choose(step, options, found, count, &chosen);
    free(found);
    if (code != POLYHAL_OK) return code;
    step->device = chosen.id;
    (void)snprintf(step->device_text, sizeof step->device_text, "%s / %s, driver %s", chosen.platform, chosen.name,
                   chosen.driver);
    code = check_limits(step);
    if (code != POLYHAL_OK) return code;
    step->context = step->cl.CreateContext(NULL, 1, &step->device, NULL, NULL, &status);
    if (status != CL_SUCCESS) return polyhal_fail_opencl(step, status, "opening", step->device_text);
    step->queue = step->cl.CreateCommandQueue(step->context, step->device, 0, &status);
    if (status != CL_SUCCESS) return polyhal_fail_opencl(step, status, "creating a queue of", step->device_text);
    return POLYHAL_OK;
}
