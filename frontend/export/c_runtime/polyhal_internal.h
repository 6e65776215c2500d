/* Shared by the files of the runtime; programs include polyhal_step.h. */
#ifndef POLYHAL_INTERNAL_H
#define POLYHAL_INTERNAL_H

#include "polyhal_opencl.h"
#include "polyhal_step.h"

#include <stdint.h>

#define POLYHAL_TEXT 4096

/* A Python number. */
typedef struct polyhal_scalar {
    int is_float;
    int64_t integer;
    double real;
} polyhal_scalar;

typedef struct polyhal_stream_state {
    uint64_t seed;
    uint64_t offset; /* blocks drawn by earlier runs */
} polyhal_stream_state;

struct polyhal_step {
    const polyhal_program *program;
    char error[POLYHAL_TEXT];
    char device_text[POLYHAL_TEXT];
    char folder[POLYHAL_TEXT];
    char cache[POLYHAL_TEXT]; /* empty for none */
    polyhal_opencl cl;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_mem *buffers;
    cl_program *programs; /* of each kernel of the tables */
    cl_kernel *kernels;   /* of each launch */
    polyhal_scalar *named;
    polyhal_stream_state *streams;
    polyhal_scalar *numbers; /* of the last run */
    int numbers_are_set;     /* the kernels have the numbers of the last run */
    int is_open;
};

/* Store a message like printf and return `code`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int polyhal_fail(polyhal_step *step, int code, const char *format, ...);

/* Fail with the name of a driver's error. */
int polyhal_fail_opencl(polyhal_step *step, cl_int status, const char *action, const char *what);

/* polyhal_device.c: choose and open the device, which fulfils the requirements of the tables. */
int polyhal_open_device(polyhal_step *step, const polyhal_options *options);

/* polyhal_kernels.c: build the programs and bind the arguments that stay the same. */
int polyhal_build_kernels(polyhal_step *step);
int polyhal_bind_arguments(polyhal_step *step);

/* polyhal_numbers.c: compute the numbers of the next run, and pass those that changed to the kernels. */
int polyhal_advance_numbers(polyhal_step *step);
double polyhal_scalar_value(polyhal_scalar x);

/* polyhal_binaries.c: a program from the cache of compiled kernels, NULL if it has none that the driver accepts; and its
 * storing. Neither fails: a kernel that is not in the cache is compiled. `key` is a SHA-256 of everything it depends on. */
cl_program polyhal_cached_program(polyhal_step *step, const polyhal_kernel *kernel, const char *key);
void polyhal_cache_program(polyhal_step *step, const char *key, cl_program program);

/* polyhal_files.c: read a file of the export completely. `*bytes` is allocated. */
int polyhal_read_file(polyhal_step *step, const char *path, size_t expected, unsigned char **bytes);
/* Write a file through another one, so that no program finds a part of it. */
int polyhal_write_file(polyhal_step *step, const char *path, const unsigned char *bytes, size_t count);
int polyhal_path(polyhal_step *step, const char *file, char *path);

/* polyhal_state.c */
int polyhal_load_constants(polyhal_step *step);
int polyhal_load_initial_state(polyhal_step *step);

/* polyhal_sha256.c */
typedef struct polyhal_sha256 {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
} polyhal_sha256;
void polyhal_sha256_begin(polyhal_sha256 *hash);
void polyhal_sha256_add(polyhal_sha256 *hash, const void *bytes, size_t count);
void polyhal_sha256_end(polyhal_sha256 *hash, char *digits); /* writes 64 hexadecimal digits and a zero */

#endif
