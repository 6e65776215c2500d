// Cross entropy of rows of logits with integer classes, the logsumexp of each row, and the gradient with respect to
// the logits. Rows whose class is ignored or outside give 0.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#ifndef SMOOTHED
#define SMOOTHED 0
#endif
#include "lib/rows.cuh"

KERNEL cross_entropy(const DTYPE *x, const INDEX_DTYPE *target, real *loss, real *lse, const int64 target_step,
                     const int64 ignored, const real smoothing, ROW_PARAMETERS, STRIDES(x)) {
    const uint64 number = row_number();
    if (number >= rows) return;
    const DTYPE *from = ROW_OF(x, number);
    const Row<DTYPE> row(from, x_step, length);
    real top = -INFINITY, sum = 0, logits = 0;
    for_row(length, [&](int slot, uint32 i) { top = fmax(top, row(slot, i)); });
    top = group_max(top);
    if (isinf(top)) top = 0;
    for_row(length, [&](int slot, uint32 i) {
        sum += exp(row(slot, i) - top);
        if (SMOOTHED) logits += row(slot, i);
    });
    sum = group_sum(sum);
    if (SMOOTHED) logits = group_sum(logits);
    if (lane() != 0) return;
    const real total = log(sum) + top;
    const int64 picked = (int64)widen(target[(int64)number * target_step]);
    real value = 0;
    if (picked != ignored && picked >= 0 && picked < (int64)length) {
        value = (1 - smoothing) * (total - (real)widen(from[picked * x_step]));
        if (SMOOTHED) value += smoothing * (total - logits / length);
    }
    loss[number] = value;
    lse[number] = total;
}

// g * (softmax - target distribution), from the saved logsumexp.
KERNEL cross_entropy_grad(const GRADIENT_DTYPE *g, const DTYPE *x, const INDEX_DTYPE *target, const real *lse,
                          DTYPE *dx, const int64 g_step, const int64 target_step, const int64 lse_step,
                          const int64 ignored, const real smoothing, ROW_PARAMETERS, STRIDES(x), STRIDES(dx)) {
    const uint64 number = row_number();
    if (number >= rows) return;
    const int64 picked = (int64)widen(target[(int64)number * target_step]);
    const bool used = picked != ignored && picked >= 0 && picked < (int64)length;
    const real slope = used ? (real)widen(g[(int64)number * g_step]) : 0, total = lse[(int64)number * lse_step];
    const real shared = smoothing / length, hot = 1 - smoothing;
    const Row<DTYPE> row(ROW_OF(x, number), x_step, length);
    write_row(ROW_OF(dx, number), dx_step, length, [&](int slot, uint32 i) {
        const real value = exp(row(slot, i) - total) - shared - ((int64)i == picked ? hot : 0);
        return used ? value * slope : 0;
    });
}
