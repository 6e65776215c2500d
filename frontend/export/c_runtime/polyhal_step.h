/* Runs a step that Polyhal captured in Python: an inference or a training step, on one OpenCL device.
 *
 * This file is part of Polyhal and the same in every export; STEP.h declares one exported step. Every function returns a
 * polyhal_code and leaves a message in polyhal_step_last_error. A step may be used by one thread at a time; several steps
 * are independent of each other.
 */
#ifndef POLYHAL_STEP_H
#define POLYHAL_STEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POLYHAL_FORMAT 1 /* version of the tables below; a step's tables and the runtime must agree */

typedef enum polyhal_code {
    POLYHAL_OK = 0,
    POLYHAL_NO_MEMORY = 1,    /* of the host or the device */
    POLYHAL_NO_OPENCL = 2,    /* no OpenCL loader, or one that lacks functions */
    POLYHAL_NO_DEVICE = 3,    /* no device of the given name */
    POLYHAL_OTHER_DEVICE = 4, /* the kernels were chosen for another device */
    POLYHAL_BUILD_FAILED = 5, /* the driver's compiler refused a kernel */
    POLYHAL_FILE = 6,         /* a file is missing, damaged, or cannot be written */
    POLYHAL_OPENCL = 7,       /* a call of the driver failed */
    POLYHAL_NUMBER = 8,       /* a number of the step cannot be computed, or does not fit its type */
    POLYHAL_USAGE = 9         /* a wrong argument */
} polyhal_code;

/* --- the tables of an exported step -------------------------------------------------------------------------------- */

/* A tensor: `bytes` bytes at `offset` of a buffer, contiguous. */
typedef struct polyhal_tensor {
    const char *name;
    const char *dtype;  /* name in Python, such as "float32" */
    const char *shape;  /* text, such as "[32, 20]" */
    size_t bytes;
    uint32_t buffer;
    size_t offset;
} polyhal_tensor;

/* A program with one kernel: its text is embedded as lines, or in a file whose size and SHA-256 are known. */
typedef struct polyhal_kernel {
    const char *name;
    const char *options;
    const char *const *lines; /* NULL if the text is in `file` */
    uint32_t line_count;
    const char *file;
    size_t bytes;
    const char *sha256;
} polyhal_kernel;

typedef enum polyhal_kind {
    POLYHAL_BUFFER, /* `index` is a buffer */
    POLYHAL_VALUE,  /* `size` bytes at `value` */
    POLYHAL_LOCAL,  /* `size` bytes of local memory */
    POLYHAL_INT,    /* `index` is a number that is computed before each run, passed as this type */
    POLYHAL_UINT,
    POLYHAL_LONG,
    POLYHAL_ULONG,
    POLYHAL_FLOAT,
    POLYHAL_DOUBLE
} polyhal_kind;

typedef struct polyhal_argument {
    polyhal_kind kind;
    uint32_t index;
    size_t size;
    const void *value;
} polyhal_argument;

typedef struct polyhal_launch {
    uint32_t kernel;
    uint32_t argument_count;
    const polyhal_argument *arguments;
    uint32_t dimensions;
    size_t items[3]; /* work-items in all */
    size_t group[3]; /* work-items of a group */
} polyhal_launch;

/* Numbers that are computed before each run, in order. Operands are earlier numbers. */
typedef enum polyhal_operation {
    POLYHAL_CONSTANT,
    POLYHAL_NAMED,  /* set by the program, or growing by `integer` before each run; `operands[0]` is its position */
    POLYHAL_SEED,   /* of random stream `operands[0]` */
    POLYHAL_OFFSET, /* of random stream `operands[0]`, plus `integer` blocks */
    POLYHAL_ADD,
    POLYHAL_SUBTRACT,
    POLYHAL_MULTIPLY,
    POLYHAL_DIVIDE,
    POLYHAL_FLOOR_DIVIDE,
    POLYHAL_MODULO,
    POLYHAL_POWER,
    POLYHAL_NEGATIVE,
    POLYHAL_POSITIVE,
    POLYHAL_ABSOLUTE,
    POLYHAL_EXPM1,
    POLYHAL_LOG,
    POLYHAL_SQRT,
    POLYHAL_SIGN,
    POLYHAL_GREATER,
    POLYHAL_LESS,
    POLYHAL_NOT_EQUAL,
    POLYHAL_MAXIMUM,
    POLYHAL_MINIMUM,
    POLYHAL_WHERE,
    POLYHAL_TO_BOOL,
    POLYHAL_TO_INT,
    POLYHAL_TO_FLOAT
} polyhal_operation;

typedef struct polyhal_number {
    polyhal_operation operation;
    uint32_t operands[3];
    int is_float; /* of a constant: `real` instead of `integer` */
    int64_t integer;
    double real;
} polyhal_number;

/* A number that the program may set; it is stored with the state. */
typedef struct polyhal_named {
    const char *name;
    int is_float;
    int64_t grows; /* added before each run */
} polyhal_named;

/* A stream of random numbers: a run draws `blocks` blocks. Seed and offset are stored with the state. */
typedef struct polyhal_stream {
    uint64_t blocks;
} polyhal_stream;

/* A part of a tensor file. */
typedef struct polyhal_entry {
    const char *name;
    const char *prefix; /* text that is hashed before the bytes: dtype and shape */
    size_t bytes;
    size_t at;      /* position in the file */
    size_t hash_at; /* position of its hash, 64 hexadecimal digits */
} polyhal_entry;

/* A safetensors file as polyhal.save writes it: its header is known except for the hashes. */
typedef struct polyhal_file {
    const char *file;              /* name; NULL if it is embedded */
    const unsigned char *embedded; /* all bytes */
    size_t bytes;
    const unsigned char *header;
    size_t header_bytes;
    uint32_t entry_count;
    const polyhal_entry *entries;
} polyhal_file;

/* Constants of kernels: entry i of the file of constants is copied to the start of `buffers[i]`. */
typedef struct polyhal_program {
    uint32_t format;
    const char *name;
    const char *version;  /* of Polyhal, which wrote the step */
    const char *platform; /* the device for which kernels and sizes were chosen */
    const char *device;
    const char *driver;
    const char *extensions; /* extensions that kernels switch on, separated by spaces */
    size_t largest_group;   /* work-items */
    size_t local_bytes;     /* most local memory that a launch passes as an argument */

    uint32_t buffer_count;
    const size_t *buffers; /* bytes of each */
    uint32_t kernel_count;
    const polyhal_kernel *kernels;
    uint32_t launch_count;
    const polyhal_launch *launches;

    uint32_t input_count;
    const polyhal_tensor *inputs;
    uint32_t output_count;
    const polyhal_tensor *outputs;
    uint32_t state_count;
    const polyhal_tensor *state; /* in the order of the file of state, which numbers and streams follow */
    uint32_t constant_count;
    const polyhal_tensor *constants;

    uint32_t number_count;
    const polyhal_number *numbers;
    uint32_t named_count;
    const polyhal_named *named;
    uint32_t stream_count;
    const polyhal_stream *streams;

    const polyhal_file *state_file;
    const polyhal_file *constant_file; /* NULL if there are no constants */
} polyhal_program;

/* --- functions ----------------------------------------------------------------------------------------------------- */

typedef struct polyhal_step polyhal_step;

typedef struct polyhal_options {
    const char *device;  /* part of "PLATFORM / DEVICE"; NULL for the device of the export */
    const char *folder;  /* of the data files; NULL for the current folder */
    const char *library; /* file of the OpenCL loader; NULL for the system's, or the one in POLYHAL_OPENCL_LIBRARY */
    int any_device;      /* not 0: use a device of another name than the export's, whose results may differ or fail */
    const char *cache;   /* existing folder of this machine in which compiled kernels are kept; NULL to compile each time */
} polyhal_options;

/* Open a device, build the kernels and load the state. `*made` is NULL only if the host's memory is exhausted; free it
 * after a failure, too. */
int polyhal_step_init(polyhal_step **made, const polyhal_program *program, const polyhal_options *options);

/* Run once. `inputs` are in the order of the tables; an output that is NULL is not copied. Without outputs it returns
 * before the device has finished. */
int polyhal_step_run(polyhal_step *step, const void *const *inputs, void *const *outputs);

/* Wait until the device has finished. */
int polyhal_step_wait(polyhal_step *step);

/* Copy a tensor of the state, such as a weight, from or to the device. `bytes` must be its size. */
int polyhal_step_read(polyhal_step *step, const char *name, void *to, size_t bytes);
int polyhal_step_write(polyhal_step *step, const char *name, const void *from, size_t bytes);

/* A number of the step, such as a learning rate. The next run uses it. */
int polyhal_step_get_number(polyhal_step *step, const char *name, double *value);
int polyhal_step_set_number(polyhal_step *step, const char *name, double value);

/* Save weights, optimizer state, numbers and random streams, for polyhal.load in Python and for `load` here. The old file
 * is replaced when the new one is complete. A file that is not of this step changes nothing. */
int polyhal_step_state_save(polyhal_step *step, const char *path);
int polyhal_step_state_load(polyhal_step *step, const char *path);

/* The message of the last failure; empty if there was none. Valid until the next call. */
const char *polyhal_step_last_error(const polyhal_step *step);

/* The device that the step runs on, with its platform and driver. */
const char *polyhal_step_device(const polyhal_step *step);

/* Wait and release everything. NULL is allowed. */
void polyhal_step_free(polyhal_step *step);

#ifdef __cplusplus
}
#endif
#endif
