/* Runs an exported step for the tests: run_step DEVICE STEPS INPUTS OUTPUTS LOAD SAVE, where "" leaves a part out.
 *
 * INPUTS has the bytes of all inputs of the first step, then of the second, and so on; OUTPUTS gets the outputs likewise.
 * The environment variable STEP_CACHE names a folder for compiled kernels. A failure prints its code and message, and ends with the code.
 */
#include "polyhal_step.h"

#include <stdio.h>
#include <stdlib.h>

extern const polyhal_program POLYHAL_PROGRAM;

static int failed(polyhal_step *step, int code) {
    (void)fprintf(stderr, "%d: %s\n", code, polyhal_step_last_error(step));
    polyhal_step_free(step);
    return code;
}

int main(int count, char **arguments) {
    const polyhal_program *program = &POLYHAL_PROGRAM;
    polyhal_options options = {NULL, STEP_FOLDER, NULL, 0, NULL};
    polyhal_step *step;
    void *inputs[64], *outputs[64];
    FILE *from, *to;
    long steps, k;
    uint32_t i;
    int code;
    if (count != 7 || program->input_count > 64 || program->output_count > 64) return 100;
    if (*arguments[1]) options.device = arguments[1];
    options.cache = getenv("STEP_CACHE");
    steps = strtol(arguments[2], NULL, 10);
    code = polyhal_step_init(&step, program, &options);
    if (code == POLYHAL_OK && *arguments[5]) code = polyhal_step_state_load(step, arguments[5]);
    if (code != POLYHAL_OK) return failed(step, code);
    from = fopen(arguments[3], "rb");
    to = fopen(arguments[4], "wb");
    if (from == NULL || to == NULL) return 101;
    for (i = 0; i < program->input_count; i++) inputs[i] = malloc(program->inputs[i].bytes);
    for (i = 0; i < program->output_count; i++) outputs[i] = malloc(program->outputs[i].bytes);
    for (k = 0; k < steps && code == POLYHAL_OK; k++) {
        for (i = 0; i < program->input_count; i++) {
            if (fread(inputs[i], 1, program->inputs[i].bytes, from) != program->inputs[i].bytes) return 102;
        }
        code = polyhal_step_run(step, (const void *const *)inputs, outputs);
        for (i = 0; i < program->output_count && code == POLYHAL_OK; i++) {
            if (fwrite(outputs[i], 1, program->outputs[i].bytes, to) != program->outputs[i].bytes) return 103;
        }
    }
    if (code == POLYHAL_OK && *arguments[6]) code = polyhal_step_state_save(step, arguments[6]);
    for (i = 0; i < program->input_count; i++) free(inputs[i]);
    for (i = 0; i < program->output_count; i++) free(outputs[i]);
    (void)fclose(from);
    (void)fclose(to);
    if (code != POLYHAL_OK) return failed(step, code);
    polyhal_step_free(step);
    return 0;
}
