/* Builds the programs of a step, and binds the arguments of its launches that stay the same from run to run. */
#include "polyhal_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_text(polyhal_step *step, const polyhal_kernel *kernel, unsigned char **text) {
    char path[POLYHAL_TEXT], digits[65];
    polyhal_sha256 hash;
    int code = polyhal_path(step, kernel->file, path);
    if (code == POLYHAL_OK) code = polyhal_read_file(step, path, kernel->bytes, text);
    if (code != POLYHAL_OK) return code;
    polyhal_sha256_begin(&hash);
    polyhal_sha256_add(&hash, *text, kernel->bytes);
    polyhal_sha256_end(&hash, digits);
    if (strcmp(digits, kernel->sha256) == 0) return POLYHAL_OK;
    free(*text);
    *text = NULL;
    return polyhal_fail(step, POLYHAL_FILE, "%s was altered: its SHA-256 is %s, expected %s", path, digits, kernel->sha256);
}

static int build_failed(polyhal_step *step, const polyhal_kernel *kernel, cl_program program, cl_int status) {
    char log[2048];
    log[0] = '\0';
    (void)step->cl.GetProgramBuildInfo(program, step->device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    log[sizeof log - 1] = '\0';
    return polyhal_fail(step, POLYHAL_BUILD_FAILED, "%s does not compile %s (%s, options %s): %s", step->device_text,
                        kernel->name, polyhal_opencl_error(status), kernel->options, log);
}

/* Write the SHA-256 of everything that a compiled kernel depends on: device, driver, options and text. */
static void key_of(const polyhal_step *step, const polyhal_kernel *kernel, const char *text, char *key) {
    polyhal_sha256 hash;
    uint32_t i;
    polyhal_sha256_begin(&hash);
    polyhal_sha256_add(&hash, step->device_text, strlen(step->device_text) + 1);
    polyhal_sha256_add(&hash, kernel->options, strlen(kernel->options) + 1);
    if (text != NULL) polyhal_sha256_add(&hash, text, kernel->bytes);
    for (i = 0; kernel->lines != NULL && i < kernel->line_count; i++) {
        polyhal_sha256_add(&hash, kernel->lines[i], strlen(kernel->lines[i]));
    }
    polyhal_sha256_end(&hash, key);
}

static int build_kernel(polyhal_step *step, const polyhal_kernel *kernel, cl_program *program) {
    cl_int status = CL_SUCCESS;
    char key[65];
    if (kernel->lines != NULL) {
        const char **lines;
        key_of(step, kernel, NULL, key);
        *program = polyhal_cached_program(step, kernel, key);
        if (*program != NULL) return POLYHAL_OK;
        /* OpenCL's parameter lacks a const: the function does not change the strings. */
        lines = malloc(kernel->line_count * sizeof *lines);
        if (lines == NULL) return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for the text of %s", kernel->name);
        memcpy(lines, kernel->lines, kernel->line_count * sizeof *lines);
        *program = step->cl.CreateProgramWithSource(step->context, kernel->line_count, lines, NULL, &status);
        free(lines);
    } else {
        unsigned char *text = NULL;
        const char *source;
        int code = read_text(step, kernel, &text);
        if (code != POLYHAL_OK) return code;
        source = (const char *)text;
        key_of(step, kernel, source, key);
        *program = polyhal_cached_program(step, kernel, key);
        if (*program != NULL) {
            free(text);
            return POLYHAL_OK;
        }
        *program = step->cl.CreateProgramWithSource(step->context, 1, &source, &kernel->bytes, &status);
        free(text);
    }
    if (status != CL_SUCCESS) return polyhal_fail_opencl(step, status, "creating the program of", kernel->name);
    status = step->cl.BuildProgram(*program, 1, &step->device, kernel->options, NULL, NULL);
    if (status != CL_SUCCESS) return build_failed(step, kernel, *program, status);
    polyhal_cache_program(step, key, *program);
    return POLYHAL_OK;
}

int polyhal_build_kernels(polyhal_step *step) {
    const polyhal_program *program = step->program;
    cl_int status = CL_SUCCESS;
    uint32_t i;
    for (i = 0; i < program->kernel_count; i++) {
        int code = build_kernel(step, &program->kernels[i], &step->programs[i]);
        if (code != POLYHAL_OK) return code;
    }
    for (i = 0; i < program->launch_count; i++) {
        uint32_t k = program->launches[i].kernel;
        step->kernels[i] = step->cl.CreateKernel(step->programs[k], program->kernels[k].name, &status);
        if (status != CL_SUCCESS) return polyhal_fail_opencl(step, status, "creating the kernel", program->kernels[k].name);
    }
    return POLYHAL_OK;
}

static cl_int set_argument(const polyhal_step *step, cl_kernel kernel, uint32_t place, const polyhal_argument *argument) {
    switch (argument->kind) {
    case POLYHAL_BUFFER:
        return step->cl.SetKernelArg(kernel, place, sizeof(cl_mem), &step->buffers[argument->index]);
    case POLYHAL_VALUE:
        return step->cl.SetKernelArg(kernel, place, argument->size, argument->value);
    case POLYHAL_LOCAL:
        return step->cl.SetKernelArg(kernel, place, argument->size, NULL);
    default:
        return CL_SUCCESS; /* polyhal_advance_numbers sets numbers before the first run */
    }
}

int polyhal_bind_arguments(polyhal_step *step) {
    const polyhal_program *program = step->program;
    uint32_t i, place;
    for (i = 0; i < program->launch_count; i++) {
        const polyhal_launch *launch = &program->launches[i];
        for (place = 0; place < launch->argument_count; place++) {
            cl_int status = set_argument(step, step->kernels[i], place, &launch->arguments[place]);
            if (status != CL_SUCCESS) {
                return polyhal_fail(step, POLYHAL_OPENCL, "argument %lu of launch %lu, %s: %s (%ld)", (unsigned long)place,
                                    (unsigned long)i, program->kernels[launch->kernel].name, polyhal_opencl_error(status),
                                    (long)status);
            }
        }
    }
    return POLYHAL_OK;
}
