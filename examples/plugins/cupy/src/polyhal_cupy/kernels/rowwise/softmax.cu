// Softmax of rows, or with LOG its logarithm, and their gradients from the result. Subtracting the largest element of the row
// keeps the exponentials from overflowing; a NaN makes the whole row NaN through the sum.

#ifndef LOG
#define LOG 0
#endif
#include "lib/rows.cuh"

KERNEL softmax(const DTYPE *x, DTYPE *out, ROW_PARAMETERS, STRIDES(x), STRIDES(out)) {
    const uint64 row_index = row_id();
    if (row_index >= rows) return;
    const Row<DTYPE> row(ROW_OF(x, row_index), x_step, length);
    real maximum = -INFINITY, sum = 0;
    for_row(length, [&](int slot, uint32 i) { maximum = fmax(maximum, row(slot, i)); });
    maximum = group_max(maximum);
#if LOG
    // A row of minus infinities has no maximum to subtract.
    if (isinf(maximum)) maximum = 0;
#endif
    for_row(length, [&](int slot, uint32 i) { sum += exp(row(slot, i) - maximum); });
    sum = group_sum(sum);
#if LOG
    const real log_sum = log(sum);
    write_row(ROW_OF(out, row_index), out_step, length, [&](int slot, uint32 i) { return row(slot, i) - maximum - log_sum; });
#else
    const real scale = 1 / sum;
    write_row(ROW_OF(out, row_index), out_step, length,
              [&](int slot, uint32 i) { return exp(row(slot, i) - maximum) * scale; });
#endif
}

// out * (g - sum(g * out)), or with LOG g - exp(out) * sum(g).
KERNEL softmax_grad(const DTYPE *g, const DTYPE *out, DTYPE *dx, ROW_PARAMETERS, STRIDES(g), STRIDES(out),
                    STRIDES(dx)) {
    const uint64 row_index = row_id();
    if (row_index >= rows) return;
    const Row<DTYPE> gradient(ROW_OF(g, row_index), g_step, length), result(ROW_OF(out, row_index), out_step, length);
    real sum = 0;
    for_row(length, [&](int slot, uint32 i) { sum += LOG ? gradient(slot, i) : gradient(slot, i) * result(slot, i); });
    sum = group_sum(sum);
    write_row(ROW_OF(dx, row_index), dx_step, length, [&](int slot, uint32 i) {
        return LOG ? gradient(slot, i) - exp(result(slot, i)) * sum : result(slot, i) * (gradient(slot, i) - sum);
    });
}
