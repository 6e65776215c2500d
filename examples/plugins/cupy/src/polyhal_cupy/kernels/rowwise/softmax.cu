// Softmax of rows, or with LOG its logarithm, and their gradients from the result. Subtracting the row's largest
// element keeps the exponentials from overflowing; a NaN makes the whole row NaN through the sum.

#ifndef LOG
#define LOG 0
#endif
#include "lib/rows.cuh"

KERNEL softmax(const DTYPE *x, DTYPE *out, ROW_PARAMETERS, STRIDES(x), STRIDES(out)) {
    const uint64 number = row_number();
    if (number >= rows) return;
    const Row<DTYPE> row(ROW_OF(x, number), x_step, length);
    real top = -INFINITY, sum = 0;
    for_row(length, [&](int slot, uint32 i) { top = fmax(top, row(slot, i)); });
    top = group_max(top);
#if LOG
    // A row of minus infinities has no largest element to subtract.
    if (isinf(top)) top = 0;
#endif
    for_row(length, [&](int slot, uint32 i) { sum += exp(row(slot, i) - top); });
    sum = group_sum(sum);
#if LOG
    const real tail = log(sum);
    write_row(ROW_OF(out, number), out_step, length, [&](int slot, uint32 i) { return row(slot, i) - top - tail; });
#else
    const real scale = 1 / sum;
    write_row(ROW_OF(out, number), out_step, length,
              [&](int slot, uint32 i) { return exp(row(slot, i) - top) * scale; });
#endif
}

// out * (g - sum(g * out)), or with LOG g - exp(out) * sum(g).
KERNEL softmax_grad(const DTYPE *g, const DTYPE *out, DTYPE *dx, ROW_PARAMETERS, STRIDES(g), STRIDES(out),
                    STRIDES(dx)) {
    const uint64 number = row_number();
    if (number >= rows) return;
    const Row<DTYPE> slope(ROW_OF(g, number), g_step, length), result(ROW_OF(out, number), out_step, length);
    real sum = 0;
    for_row(length, [&](int slot, uint32 i) { sum += LOG ? slope(slot, i) : slope(slot, i) * result(slot, i); });
    sum = group_sum(sum);
    write_row(ROW_OF(dx, number), dx_step, length, [&](int slot, uint32 i) {
        return LOG ? slope(slot, i) - exp(result(slot, i)) * sum : result(slot, i) * (slope(slot, i) - sum);
    });
}
