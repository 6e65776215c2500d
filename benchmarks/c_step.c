/* Runs an exported step on zeros: for each number that it reads, it runs so many steps with all outputs and prints "done". */
#include "polyhal_step.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 16

extern const polyhal_program POLYHAL_PROGRAM;

int main(int count, char **arguments) {
    const polyhal_program *program = &POLYHAL_PROGRAM;
    polyhal_options options = {NULL, NULL, NULL, 0, NULL};
    polyhal_step *step;
    void *inputs[MOST] = {NULL}, *outputs[MOST] = {NULL};
    uint32_t i;
    long steps;
    int code;
    if (count != 2 || program->input_count > MOST || program->output_count > MOST) return 1;
    options.folder = arguments[1];
    code = polyhal_step_init(&step, program, &options);
    for (i = 0; i < program->input_count; i++) inputs[i] = calloc(1, program->inputs[i].bytes);
    for (i = 0; i < program->output_count; i++) outputs[i] = calloc(1, program->outputs[i].bytes);
    while (code == POLYHAL_OK && scanf("%ld", &steps) == 1) {
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
    return code;
}
