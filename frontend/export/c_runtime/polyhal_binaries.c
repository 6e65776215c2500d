/* The cache of compiled kernels: a file for each, with the SHA-256 of its bytes in front. */
#include "polyhal_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 64

static int path_of(const polyhal_step *step, const char *key, char *path) {
    int written = snprintf(path, POLYHAL_TEXT, "%s/%s.bin", step->cache, key);
    return step->cache[0] != '\0' && written > 0 && written < POLYHAL_TEXT;
}

static void digest(const unsigned char *bytes, size_t count, char *digits) {
    polyhal_sha256 hash;
    polyhal_sha256_begin(&hash);
    polyhal_sha256_add(&hash, bytes, count);
    polyhal_sha256_end(&hash, digits);
}

/* Read a file whose size is not known before. Returns NULL for a missing one. */
static unsigned char *read_all(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;
    long size;
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > DIGITS && fseek(file, 0, SEEK_SET) == 0) {
        bytes = malloc((size_t)size);
        *count = (size_t)size;
        if (bytes != NULL && fread(bytes, 1, *count, file) != *count) {
            free(bytes);
            bytes = NULL;
        }
    }
    (void)fclose(file);
    return bytes;
}

cl_program polyhal_cached_program(polyhal_step *step, const polyhal_kernel *kernel, const char *key) {
    char path[POLYHAL_TEXT], digits[DIGITS + 1];
    unsigned char *bytes;
    const unsigned char *binary;
    size_t count = 0;
    cl_int loaded = CL_SUCCESS, status = CL_SUCCESS;
    cl_program program = NULL;
    if (!path_of(step, key, path)) return NULL;
    bytes = read_all(path, &count);
    if (bytes == NULL) return NULL;
    binary = bytes + DIGITS;
    count -= DIGITS;
    digest(binary, count, digits);
    if (memcmp(digits, bytes, DIGITS) == 0) {
        program = step->cl.CreateProgramWithBinary(step->context, 1, &step->device, &count, &binary, &loaded, &status);
    }
    if (program != NULL && (status != CL_SUCCESS || loaded != CL_SUCCESS ||
                            step->cl.BuildProgram(program, 1, &step->device, kernel->options, NULL, NULL) != CL_SUCCESS)) {
        (void)step->cl.ReleaseProgram(program);
        program = NULL;
    }
    free(bytes);
    return program;
}

void polyhal_cache_program(polyhal_step *step, const char *key, cl_program program) {
    char path[POLYHAL_TEXT], digits[DIGITS + 1];
    unsigned char *bytes, *binary;
    size_t count = 0;
    if (!path_of(step, key, path)) return;
    if (step->cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof count, &count, NULL) != CL_SUCCESS || count == 0) return;
    bytes = malloc(count + DIGITS);
    if (bytes == NULL) return;
    binary = bytes + DIGITS;
    if (step->cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS) {
        digest(binary, count, digits);
        memcpy(bytes, digits, DIGITS);
        if (polyhal_write_file(step, path, bytes, count + DIGITS) != POLYHAL_OK) step->error[0] = '\0';
    }
    free(bytes);
}
