/* Continues the training that examples/export_c.py began: a robot without Python that learns from its own measurements. */
#include "learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static float angles[LEARN_INPUT_X_COUNT], forces[LEARN_INPUT_Y_COUNT];

/* Fill a batch with measurements: a force that depends on an angle, and noise. */
static void measure(void) {
    size_t i;
    for (i = 0; i < LEARN_INPUT_X_COUNT; i++) {
        double angle = 6.0 * rand() / RAND_MAX - 3.0, noise = 0.02 * rand() / RAND_MAX - 0.01;
        angles[i] = (float)angle;
        forces[i] = (float)(sin(angle) + noise);
    }
}

int main(int count, char **arguments) {
    const int steps = count > 1 ? atoi(arguments[1]) : 400;
    polyhal_step *step;
    float loss = 0;
    learn_inputs inputs = {angles, forces};
    learn_outputs outputs = {&loss};
    int k, code = learn_init(&step, NULL);
    for (k = 1; k <= steps && code == POLYHAL_OK; k++) {
        measure();
        code = learn_run(step, &inputs, &outputs);
        if (code == POLYHAL_OK && k % 100 == 0) printf("C: step %d, loss %.5f\n", k, (double)loss);
    }
    if (code == POLYHAL_OK) code = learn_state_save(step, "learned.safetensors");
    if (code != POLYHAL_OK) fprintf(stderr, "error %d: %s\n", code, learn_last_error(step));
    learn_free(step);
    return code;
}
