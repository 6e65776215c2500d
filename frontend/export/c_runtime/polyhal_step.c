/* A step: opening, running, reading, freeing. */
#include "polyhal_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int polyhal_fail(polyhal_step *step, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(step->error, sizeof step->error, format, arguments);
    va_end(arguments);
    return code;
}

int polyhal_fail_opencl(polyhal_step *step, cl_int status, const char *action, const char *what) {
    int memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
                 status == CL_OUT_OF_HOST_MEMORY;
    return polyhal_fail(step, memory ? POLYHAL_NO_MEMORY : POLYHAL_OPENCL, "%s %s: %s (%ld)", action, what,
                        polyhal_opencl_error(status), (long)status);
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

static int is_little_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* Allocate an array of zeros; one element if there are none. */
static void *zeros(size_t count, size_t size) { return calloc(count > 0 ? count : 1, size); }

static int allocate_tables(polyhal_step *step) {
    const polyhal_program *program = step->program;
    step->buffers = zeros(program->buffer_count, sizeof *step->buffers);
    step->programs = zeros(program->kernel_count, sizeof *step->programs);
    step->kernels = zeros(program->launch_count, sizeof *step->kernels);
    step->named = zeros(program->named_count, sizeof *step->named);
    step->streams = zeros(program->stream_count, sizeof *step->streams);
    step->numbers = zeros(program->number_count, sizeof *step->numbers);
    if (step->buffers != NULL && step->programs != NULL && step->kernels != NULL && step->named != NULL &&
        step->streams != NULL && step->numbers != NULL) {
        return POLYHAL_OK;
    }
    return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for the tables of the step");
}

static int allocate_buffers(polyhal_step *step) {
    const polyhal_program *program = step->program;
    uint32_t i;
    for (i = 0; i < program->buffer_count; i++) {
        cl_int status = CL_SUCCESS;
        if (program->buffers[i] == 0) continue;
        step->buffers[i] = step->cl.CreateBuffer(step->context, CL_MEM_READ_WRITE, program->buffers[i], NULL, &status);
        if (status != CL_SUCCESS) {
            char what[64];
            (void)snprintf(what, sizeof what, "buffer %lu of %lu bytes", (unsigned long)i, (unsigned long)program->buffers[i]);
            return polyhal_fail_opencl(step, status, "allocating", what);
        }
    }
    return POLYHAL_OK;
}

static int open_step(polyhal_step *step, const polyhal_options *options) {
    const char *folder = options->folder != NULL ? options->folder : ".";
    int code;
    if (step->program->format != POLYHAL_FORMAT) {
        return polyhal_fail(step, POLYHAL_USAGE, "the tables have format %lu, this runtime reads format %d",
                            (unsigned long)step->program->format, POLYHAL_FORMAT);
    }
    if (!is_little_endian()) return polyhal_fail(step, POLYHAL_USAGE, "the data of a step is little-endian, this machine is not");
    if (strlen(folder) >= sizeof step->folder) return polyhal_fail(step, POLYHAL_USAGE, "the path of the folder is too long");
    memcpy(step->folder, folder, strlen(folder) + 1);
    if (options->cache != NULL) {
        if (strlen(options->cache) >= sizeof step->cache) {
            return polyhal_fail(step, POLYHAL_USAGE, "the path of the cache is too long");
        }
        memcpy(step->cache, options->cache, strlen(options->cache) + 1);
    }
    code = allocate_tables(step);
    if (code == POLYHAL_OK) code = polyhal_open_device(step, options);
    if (code == POLYHAL_OK) code = allocate_buffers(step);
    if (code == POLYHAL_OK) code = polyhal_load_constants(step);
    if (code == POLYHAL_OK) code = polyhal_load_initial_state(step);
    if (code == POLYHAL_OK) code = polyhal_build_kernels(step);
    if (code == POLYHAL_OK) code = polyhal_bind_arguments(step);
    step->is_open = code == POLYHAL_OK;
    return code;
}

int polyhal_step_init(polyhal_step **made, const polyhal_program *program, const polyhal_options *options) {
    static const polyhal_options defaults = {NULL, NULL, NULL, 0, NULL};
    if (made == NULL || program == NULL) return POLYHAL_USAGE;
    *made = calloc(1, sizeof **made);
    if (*made == NULL) return POLYHAL_NO_MEMORY;
    (*made)->program = program;
    return open_step(*made, options != NULL ? options : &defaults);
}

void polyhal_step_free(polyhal_step *step) {
    const polyhal_program *program;
    uint32_t i;
    if (step == NULL) return;
    program = step->program;
    if (step->queue != NULL) (void)step->cl.Finish(step->queue);
    for (i = 0; step->kernels != NULL && i < program->launch_count; i++) {
        if (step->kernels[i] != NULL) (void)step->cl.ReleaseKernel(step->kernels[i]);
    }
    for (i = 0; step->programs != NULL && i < program->kernel_count; i++) {
        if (step->programs[i] != NULL) (void)step->cl.ReleaseProgram(step->programs[i]);
    }
    for (i = 0; step->buffers != NULL && i < program->buffer_count; i++) {
        if (step->buffers[i] != NULL) (void)step->cl.ReleaseMemObject(step->buffers[i]);
    }
    if (step->queue != NULL) (void)step->cl.ReleaseCommandQueue(step->queue);
    if (step->context != NULL) (void)step->cl.ReleaseContext(step->context);
    free(step->buffers);
    free(step->programs);
    free(step->kernels);
    free(step->named);
    free(step->streams);
    free(step->numbers);
    free(step);
}

/* --- running ------------------------------------------------------------------------------------------------------- */

static int copy_to_device(polyhal_step *step, const polyhal_tensor *tensor, const void *from) {
    cl_int status;
    if (tensor->bytes == 0) return POLYHAL_OK;
    if (from == NULL) return polyhal_fail(step, POLYHAL_USAGE, "%s is NULL; expected %s%s", tensor->name, tensor->dtype, tensor->shape);
    status = step->cl.EnqueueWriteBuffer(step->queue, step->buffers[tensor->buffer], CL_TRUE, tensor->offset, tensor->bytes,
                                         from, 0, NULL, NULL);
    return status == CL_SUCCESS ? POLYHAL_OK : polyhal_fail_opencl(step, status, "copying to the device:", tensor->name);
}

static int copy_to_host(polyhal_step *step, const polyhal_tensor *tensor, void *to) {
    cl_int status;
    if (to == NULL || tensor->bytes == 0) return POLYHAL_OK;
    status = step->cl.EnqueueReadBuffer(step->queue, step->buffers[tensor->buffer], CL_TRUE, tensor->offset, tensor->bytes, to,
                                        0, NULL, NULL);
    return status == CL_SUCCESS ? POLYHAL_OK : polyhal_fail_opencl(step, status, "copying to the host:", tensor->name);
}

static int enqueue(polyhal_step *step) {
    const polyhal_program *program = step->program;
    uint32_t i;
    cl_int status;
    for (i = 0; i < program->launch_count; i++) {
        const polyhal_launch *launch = &program->launches[i];
        status = step->cl.EnqueueNDRangeKernel(step->queue, step->kernels[i], launch->dimensions, NULL, launch->items,
                                               launch->group, 0, NULL, NULL);
        if (status != CL_SUCCESS) {
            return polyhal_fail(step, POLYHAL_OPENCL, "launch %lu, %s, in groups of %lu x %lu x %lu: %s (%ld)",
                                (unsigned long)i, program->kernels[launch->kernel].name, (unsigned long)launch->group[0],
                                (unsigned long)launch->group[1], (unsigned long)launch->group[2],
                                polyhal_opencl_error(status), (long)status);
        }
    }
    status = step->cl.Flush(step->queue);
    return status == CL_SUCCESS ? POLYHAL_OK : polyhal_fail_opencl(step, status, "submitting", program->name);
}

int polyhal_step_run(polyhal_step *step, const void *const *inputs, void *const *outputs) {
    const polyhal_program *program;
    uint32_t i;
    int code = POLYHAL_OK;
    if (step == NULL) return POLYHAL_USAGE;
    if (!step->is_open) return polyhal_fail(step, POLYHAL_USAGE, "the step is not open");
    program = step->program;
    for (i = 0; i < program->input_count && code == POLYHAL_OK; i++) {
        code = copy_to_device(step, &program->inputs[i], inputs[i]);
    }
    if (code == POLYHAL_OK) code = polyhal_advance_numbers(step);
    if (code == POLYHAL_OK) code = enqueue(step);
    for (i = 0; i < program->output_count && outputs != NULL && code == POLYHAL_OK; i++) {
        code = copy_to_host(step, &program->outputs[i], outputs[i]);
    }
    return code;
}

int polyhal_step_wait(polyhal_step *step) {
    cl_int status;
    if (step == NULL) return POLYHAL_USAGE;
    if (!step->is_open) return polyhal_fail(step, POLYHAL_USAGE, "the step is not open");
    status = step->cl.Finish(step->queue);
    return status == CL_SUCCESS ? POLYHAL_OK : polyhal_fail_opencl(step, status, "waiting for", step->device_text);
}

/* --- state by name -------------------------------------------------------------------------------------------------- */

static int find_state(polyhal_step *step, const char *name, size_t bytes, const polyhal_tensor **found) {
    const polyhal_program *program;
    uint32_t i;
    if (step == NULL) return POLYHAL_USAGE;
    if (!step->is_open) return polyhal_fail(step, POLYHAL_USAGE, "the step is not open");
    program = step->program;
    for (i = 0; i < program->state_count && strcmp(program->state[i].name, name) != 0; i++) continue;
    if (i == program->state_count) return polyhal_fail(step, POLYHAL_USAGE, "the step has no state named %s", name);
    *found = &program->state[i];
    if ((*found)->bytes == bytes) return POLYHAL_OK;
    return polyhal_fail(step, POLYHAL_USAGE, "%s is %s%s, %lu bytes; got %lu", name, (*found)->dtype, (*found)->shape,
                        (unsigned long)(*found)->bytes, (unsigned long)bytes);
}

int polyhal_step_read(polyhal_step *step, const char *name, void *to, size_t bytes) {
    const polyhal_tensor *tensor = NULL;
    int code = find_state(step, name, bytes, &tensor);
    return code == POLYHAL_OK ? copy_to_host(step, tensor, to) : code;
}

int polyhal_step_write(polyhal_step *step, const char *name, const void *from, size_t bytes) {
    const polyhal_tensor *tensor = NULL;
    int code = find_state(step, name, bytes, &tensor);
    return code == POLYHAL_OK ? copy_to_device(step, tensor, from) : code;
}

static int find_number(polyhal_step *step, const char *name, uint32_t *found) {
    const polyhal_program *program;
    if (step == NULL) return POLYHAL_USAGE;
    if (!step->is_open) return polyhal_fail(step, POLYHAL_USAGE, "the step is not open");
    program = step->program;
    for (*found = 0; *found < program->named_count; ++*found) {
        if (strcmp(program->named[*found].name, name) == 0) return POLYHAL_OK;
    }
    return polyhal_fail(step, POLYHAL_USAGE, "the step has no number named %s", name);
}

int polyhal_step_get_number(polyhal_step *step, const char *name, double *value) {
    uint32_t i = 0;
    int code = find_number(step, name, &i);
    if (code == POLYHAL_OK) *value = polyhal_scalar_value(step->named[i]);
    return code;
}

int polyhal_step_set_number(polyhal_step *step, const char *name, double value) {
    uint32_t i = 0;
    int code = find_number(step, name, &i);
    if (code != POLYHAL_OK) return code;
    if (step->program->named[i].is_float) {
        step->named[i].real = value;
    } else {
        if (!(value >= -9007199254740992.0 && value <= 9007199254740992.0) || (double)(int64_t)value != value) {
            return polyhal_fail(step, POLYHAL_NUMBER, "%s is an integer; got %g", name, value);
        }
        step->named[i].integer = (int64_t)value;
    }
    return POLYHAL_OK;
}

const char *polyhal_step_last_error(const polyhal_step *step) {
    return step != NULL ? step->error : "the host's memory is exhausted, or the step is NULL";
}

const char *polyhal_step_device(const polyhal_step *step) { return step != NULL ? step->device_text : ""; }
