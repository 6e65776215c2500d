/* Runs an exported step: `c_step FOLDER INPUTS COUNT OUTPUTS` runs it on each of COUNT inputs of a file, writes all outputs to
 * another and prints "done"; then, for each number that it reads, it runs so many steps on the last inputs and prints "done". */
#include "polyhal_step.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 16

extern const polyhal_program POLYHAL_PROGRAM;

static int transfer(FILE *file, void *data, size_t bytes, int writes) {
    size_t done = writes ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file);
    if (done == bytes) return 0;
    (void)fprintf(stderr, "a file ends early\n");
    return 1;
}

int main(int count, char **arguments) {
    const polyhal_program *program = &POLYHAL_PROGRAM;
    polyhal_options options = {NULL, NULL, NULL, 0, NULL};
    polyhal_step *step;
    void *inputs[MOST] = {NULL}, *outputs[MOST] = {NULL};
    FILE *given, *made;
    uint32_t i;
    long steps;
    int code, failed = 0;
    if (count != 5 || program->input_count > MOST || program->output_count > MOST) return 1;
    options.folder = arguments[1];
    given = fopen(arguments[2], "rb");
    made = fopen(arguments[4], "wb");
    if (given == NULL || made == NULL) return 1;
    code = polyhal_step_init(&step, program, &options);
    for (i = 0; i < program->input_count; i++) inputs[i] = calloc(1, program->inputs[i].bytes);
    for (i = 0; i < program->output_count; i++) outputs[i] = calloc(1, program->outputs[i].bytes);
    for (steps = atol(arguments[3]); steps > 0 && code == POLYHAL_OK && !failed; steps--) {
        for (i = 0; i < program->input_count; i++) failed |= transfer(given, inputs[i], program->inputs[i].bytes, 0);
        code = polyhal_step_run(step, (const void *const *)inputs, outputs);
        for (i = 0; i < program->output_count; i++) failed |= transfer(made, outputs[i], program->outputs[i].bytes, 1);
    }
    (void)fclose(given);
    failed |= fclose(made) != 0;
    if (code == POLYHAL_OK && !failed) {
        (void)puts("done");
        (void)fflush(stdout);
    }
    while (code == POLYHAL_OK && !failed && scanf("%ld", &steps) == 1) {
        for (; steps > 0 && code == POLYHAL_OK; steps--) {
            code = polyhal_step_run(step, (const void *const *)inputs, outputs);
        }
        (void)puts("done");
        (void)fflush(stdout);
    }
    if (code != POLYHAL_OK) (void)fprintf(stderr, "error %d: %s\n", code, polyhal_step_last_error(step));
    for (i = 0; i < program->input_count; i++) free(inputs[i]);
    for (i = 0; i < program->output_count; i++) free(outputs[i]);
    polyhal_step_free(step);
    return code != POLYHAL_OK || failed;
}
