// Layer norm (CENTRED 1) and RMS norm (CENTRED 0) of rows with the statistics that the gradient needs, and the gradient with
// respect to the input. The variance is computed around the mean, because sums of squares would cancel.

#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef BIAS
#define BIAS 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#ifndef BIAS_DTYPE
#define BIAS_DTYPE DTYPE
#endif
#include "lib/rows.cuh"

KERNEL norm_rows(const DTYPE *x,
#if WEIGHT
                 const WEIGHT_DTYPE *weight,
#endif
#if BIAS
                 const BIAS_DTYPE *bias,
#endif
                 DTYPE *out,
#if CENTRED
                 real *means,
#endif
                 real *scales, const real eps, ROW_PARAMETERS, STRIDES(x), STRIDES(out)) {
    const uint64 row_index = row_id();
    if (row_index >= rows) return;
    const Row<DTYPE> row(ROW_OF(x, row_index), x_step, length);
    real mean = 0, variance = 0;
#if CENTRED
    for_row(length, [&](int slot, uint32 i) { mean += row(slot, i); });
    mean = group_sum(mean) / length;
#endif
    for_row(length, [&](int slot, uint32 i) {
        const real centred = row(slot, i) - mean;
        variance += centred * centred;
    });
    const real scale = 1 / sqrt(group_sum(variance) / length + eps);
    write_row(ROW_OF(out, row_index), out_step, length, [&](int slot, uint32 i) {
        real value = (row(slot, i) - mean) * scale;
#if WEIGHT
        value *= (real)widen(weight[i]);
#endif
#if BIAS
        value += (real)widen(bias[i]);
#endif
        return value;
    });
    if (lane_id() != 0) return;
#if CENTRED
    means[row_index] = mean;
#endif
    scales[row_index] = scale;
}

// With n = (x - mean) * scale and s = g * weight, each row results in scale * (s - mean(s) - n * mean(s * n)); RMS norm lacks
// the second term.
KERNEL norm_rows_grad(const DTYPE *g, const DTYPE *x,
#if WEIGHT
                      const WEIGHT_DTYPE *weight,
#endif
#if CENTRED
                      const real *means,
#endif
                      const real *scales, DTYPE *dx, ROW_PARAMETERS, STRIDES(g), STRIDES(x), STRIDES(dx)) {
    const uint64 row_index = row_id();
    if (row_index >= rows) return;
#if CENTRED
    const real mean = means[row_index];
#else
    const real mean = 0;
#endif
    const real scale = scales[row_index];
    const Row<DTYPE> gradients(ROW_OF(g, row_index), g_step, length), row(ROW_OF(x, row_index), x_step, length);
    const auto scaled = [&](int slot, uint32 i) {
#if WEIGHT
        return gradients(slot, i) * (real)widen(weight[i]);
#else
        return gradients(slot, i);
#endif
    };
    real sum = 0, product = 0;
    for_row(length, [&](int slot, uint32 i) {
        const real s = scaled(slot, i);
        sum += s;
        product += s * (row(slot, i) - mean);
    });
    product = group_sum(product) * scale * scale / length;
    sum = CENTRED ? group_sum(sum) / length : 0;
    write_row(ROW_OF(dx, row_index), dx_step, length,
              [&](int slot, uint32 i) { return (scaled(slot, i) - sum - (row(slot, i) - mean) * product) * scale; });
}
