/* Files of an export: whole files of a known size. */
#include "polyhal_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int polyhal_path(polyhal_step *step, const char *file, char *path) {
    int written = snprintf(path, POLYHAL_TEXT, "%s/%s", step->folder, file);
    if (written < 0 || written >= POLYHAL_TEXT) {
        return polyhal_fail(step, POLYHAL_FILE, "the path of %s in %s is too long", file, step->folder);
    }
    return POLYHAL_OK;
}

int polyhal_read_file(polyhal_step *step, const char *path, size_t expected, unsigned char **bytes) {
    FILE *file = fopen(path, "rb");
    size_t count;
    int more;
    *bytes = NULL;
    if (file == NULL) return polyhal_fail(step, POLYHAL_FILE, "%s cannot be opened: %s", path, strerror(errno));
    *bytes = malloc(expected + 1);
    if (*bytes == NULL) {
        (void)fclose(file);
        return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for the %lu bytes of %s", (unsigned long)expected, path);
    }
    count = fread(*bytes, 1, expected, file);
    more = count == expected && fgetc(file) != EOF;
    (void)fclose(file);
    (*bytes)[count] = 0;
    if (count == expected && !more) return POLYHAL_OK;
    free(*bytes);
    *bytes = NULL;
    return polyhal_fail(step, POLYHAL_FILE, "%s is damaged: it has %s%lu bytes, expected %lu", path,
                        more ? "more than " : "only ", (unsigned long)count, (unsigned long)expected);
}

int polyhal_write_file(polyhal_step *step, const char *path, const unsigned char *bytes, size_t count) {
    char unfinished[POLYHAL_TEXT];
    FILE *file;
    size_t written;
    int length = snprintf(unfinished, sizeof unfinished, "%s.tmp", path), failed;
    if (length < 0 || length >= POLYHAL_TEXT) return polyhal_fail(step, POLYHAL_FILE, "the path %s is too long", path);
    file = fopen(unfinished, "wb");
    if (file == NULL) return polyhal_fail(step, POLYHAL_FILE, "%s cannot be written: %s", unfinished, strerror(errno));
    written = fwrite(bytes, 1, count, file);
    failed = written != count;
    if (fclose(file) != 0 || failed) {
        (void)remove(unfinished);
        return polyhal_fail(step, POLYHAL_FILE, "%s cannot be written: the disk may be full", unfinished);
    }
#if defined(_WIN32)
    (void)remove(path); /* rename does not replace files there */
#endif
    if (rename(unfinished, path) == 0) return POLYHAL_OK;
    failed = errno;
    (void)remove(unfinished);
    return polyhal_fail(step, POLYHAL_FILE, "%s cannot be replaced: %s", path, strerror(failed));
}
