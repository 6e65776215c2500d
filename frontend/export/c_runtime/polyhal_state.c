/* Tensor files: weights and other state, numbers, random streams, and constants of kernels.
 *
 * A file of state has the form that polyhal.save gives it: a header that is the same for every file of a step except for the
 * hashes, then the tensors of the state, the named numbers, and seed and offset of each random stream.
 */
#include "polyhal_internal.h"

#include <stdlib.h>
#include <string.h>

/* Write the hash of an entry, 64 digits and a zero. */
static void digest(const polyhal_entry *entry, const unsigned char *bytes, char *digits) {
    polyhal_sha256 hash;
    polyhal_sha256_begin(&hash);
    polyhal_sha256_add(&hash, entry->prefix, strlen(entry->prefix));
    polyhal_sha256_add(&hash, bytes, entry->bytes);
    polyhal_sha256_end(&hash, digits);
}

/* Whether a file's header is the expected one: they may differ in hashes only. */
static int has_header(const polyhal_file *file, const unsigned char *bytes) {
    size_t at = 0;
    uint32_t i;
    for (i = 0; i < file->entry_count; i++) {
        size_t hash_at = file->entries[i].hash_at;
        if (memcmp(bytes + at, file->header + at, hash_at - at) != 0) return 0;
        at = hash_at + 64;
    }
    return memcmp(bytes + at, file->header + at, file->header_bytes - at) == 0;
}

static int check(polyhal_step *step, const polyhal_file *file, const char *path, const unsigned char *bytes) {
    uint32_t i;
    if (!has_header(file, bytes)) {
        return polyhal_fail(step, POLYHAL_FILE, "%s is not a file of the step %s: its header is another one", path,
                            step->program->name);
    }
    for (i = 0; i < file->entry_count; i++) {
        const polyhal_entry *entry = &file->entries[i];
        char digits[65];
        digest(entry, bytes + entry->at, digits);
        if (memcmp(digits, bytes + entry->hash_at, 64) != 0) {
            return polyhal_fail(step, POLYHAL_FILE, "%s: %s was altered: its SHA-256 is %s, expected %.64s", path, entry->name,
                                digits, (const char *)bytes + entry->hash_at);
        }
    }
    return POLYHAL_OK;
}

static int upload(polyhal_step *step, const polyhal_tensor *tensor, const unsigned char *bytes) {
    cl_int status;
    if (tensor->bytes == 0) return POLYHAL_OK;
    status = step->cl.EnqueueWriteBuffer(step->queue, step->buffers[tensor->buffer], CL_TRUE, tensor->offset, tensor->bytes,
                                         bytes, 0, NULL, NULL);
    return status == CL_SUCCESS ? POLYHAL_OK : polyhal_fail_opencl(step, status, "copying to the device:", tensor->name);
}

static int upload_all(polyhal_step *step, const polyhal_file *file, const polyhal_tensor *tensors, uint32_t count,
                      const unsigned char *bytes) {
    uint32_t i;
    int code = POLYHAL_OK;
    for (i = 0; i < count && code == POLYHAL_OK; i++) code = upload(step, &tensors[i], bytes + file->entries[i].at);
    return code;
}

/* Take the numbers and random streams from a file of state. */
static void take_numbers(polyhal_step *step, const unsigned char *bytes) {
    const polyhal_program *program = step->program;
    const polyhal_entry *entry = program->state_file->entries + program->state_count;
    uint32_t i;
    for (i = 0; i < program->named_count; i++, entry++) {
        step->named[i].is_float = program->named[i].is_float;
        if (program->named[i].is_float) {
            memcpy(&step->named[i].real, bytes + entry->at, sizeof(double));
        } else {
            memcpy(&step->named[i].integer, bytes + entry->at, sizeof(int64_t));
        }
    }
    for (i = 0; i < program->stream_count; i++, entry += 2) {
        memcpy(&step->streams[i].seed, bytes + entry[0].at, sizeof(uint64_t));
        memcpy(&step->streams[i].offset, bytes + entry[1].at, sizeof(uint64_t));
    }
}

/* Read a file of the export, or find it embedded, and check it. The caller frees `*read`, which is NULL if it is embedded. */
static int open_file(polyhal_step *step, const polyhal_file *file, const unsigned char **bytes, unsigned char **read) {
    char path[POLYHAL_TEXT];
    int code;
    *read = NULL;
    *bytes = file->embedded;
    if (file->embedded != NULL) return check(step, file, "the embedded data", file->embedded);
    code = polyhal_path(step, file->file, path);
    if (code == POLYHAL_OK) code = polyhal_read_file(step, path, file->bytes, read);
    if (code != POLYHAL_OK) return code;
    *bytes = *read;
    return check(step, file, path, *read);
}

int polyhal_load_constants(polyhal_step *step) {
    const polyhal_program *program = step->program;
    const unsigned char *bytes;
    unsigned char *read;
    int code;
    if (program->constant_file == NULL) return POLYHAL_OK;
    code = open_file(step, program->constant_file, &bytes, &read);
    if (code == POLYHAL_OK) {
        code = upload_all(step, program->constant_file, program->constants, program->constant_count, bytes);
    }
    free(read);
    return code;
}

int polyhal_load_initial_state(polyhal_step *step) {
    const polyhal_program *program = step->program;
    const unsigned char *bytes;
    unsigned char *read;
    int code = open_file(step, program->state_file, &bytes, &read);
    if (code == POLYHAL_OK) code = upload_all(step, program->state_file, program->state, program->state_count, bytes);
    if (code == POLYHAL_OK) take_numbers(step, bytes);
    free(read);
    return code;
}

int polyhal_step_state_load(polyhal_step *step, const char *path) {
    const polyhal_program *program;
    unsigned char *bytes;
    int code;
    if (step == NULL) return POLYHAL_USAGE;
    if (!step->is_open) return polyhal_fail(step, POLYHAL_USAGE, "the step is not open");
    program = step->program;
    code = polyhal_read_file(step, path, program->state_file->bytes, &bytes);
    if (code != POLYHAL_OK) return code;
    code = check(step, program->state_file, path, bytes);
    if (code == POLYHAL_OK) code = upload_all(step, program->state_file, program->state, program->state_count, bytes);
    if (code == POLYHAL_OK) take_numbers(step, bytes);
    free(bytes);
    return code;
}

/* Fill the bytes of a file of state after its header. */
static int collect(polyhal_step *step, unsigned char *bytes) {
    const polyhal_program *program = step->program;
    const polyhal_entry *entry = program->state_file->entries;
    uint32_t i;
    for (i = 0; i < program->state_count; i++, entry++) {
        const polyhal_tensor *tensor = &program->state[i];
        int code = polyhal_step_read(step, tensor->name, bytes + entry->at, tensor->bytes);
        if (code != POLYHAL_OK) return code;
    }
    for (i = 0; i < program->named_count; i++, entry++) {
        const polyhal_scalar *x = &step->named[i];
        memcpy(bytes + entry->at, x->is_float ? (const void *)&x->real : (const void *)&x->integer, 8);
    }
    for (i = 0; i < program->stream_count; i++, entry += 2) {
        memcpy(bytes + entry[0].at, &step->streams[i].seed, sizeof(uint64_t));
        memcpy(bytes + entry[1].at, &step->streams[i].offset, sizeof(uint64_t));
    }
    return POLYHAL_OK;
}

int polyhal_step_state_save(polyhal_step *step, const char *path) {
    const polyhal_file *file;
    unsigned char *bytes;
    uint32_t i;
    int code;
    if (step == NULL) return POLYHAL_USAGE;
    if (!step->is_open) return polyhal_fail(step, POLYHAL_USAGE, "the step is not open");
    file = step->program->state_file;
    bytes = malloc(file->bytes);
    if (bytes == NULL) return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for %lu bytes", (unsigned long)file->bytes);
    memcpy(bytes, file->header, file->header_bytes);
    code = collect(step, bytes);
    for (i = 0; i < file->entry_count && code == POLYHAL_OK; i++) {
        char digits[65];
        digest(&file->entries[i], bytes + file->entries[i].at, digits);
        memcpy(bytes + file->entries[i].hash_at, digits, 64);
    }
    if (code == POLYHAL_OK) code = polyhal_write_file(step, path, bytes, file->bytes);
    free(bytes);
    return code;
}
