// The loss of a row of logits with an integer class, and its gradient, for the kernels of lib/rows.h. `top` is the row's
// largest logit, or 0, and `total` the logarithm of the sum of exp(x - top). SMOOTHED means label smoothing.

#ifndef POLYHAL_CROSS_ENTROPY_ROWS
#define POLYHAL_CROSS_ENTROPY_ROWS

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef SMOOTHED
#define SMOOTHED 0
#endif
#ifndef PADDING
#define PADDING 0
#endif
#include "lib/exponential.h"

// Sets `sum` to the sum of x - top over the row, which smoothed losses need.
#if SMOOTHED
#define SUM_OF_LOGITS(x, at, top, sum) \
    { \
        DECLARE_ACCUMULATORS(parts, 0) \
        FOR_VECTORS parts[k] += ROW_VALUE(x, at) - top; \
        sum = SUM_ACCUMULATORS(parts); \
        FOR_TAIL sum += LOAD(DTYPE, x, at + i) - top; \
        GROUP_SUM(sum) \
    }
#else
#define SUM_OF_LOGITS(x, at, top, sum)
#endif

#define HAS_CLASS(picked) (picked != ignored && picked >= 0 && picked < (long)length)
// The loss: 0 if the class `picked` is ignored, and NaN if it is out of range. `logits` is the sum of x - top.
#define ROW_LOSS(value, x, at, picked, top, total, logits) \
    REAL value = picked == ignored ? 0 : NAN; \
    if (HAS_CLASS(picked)) { \
        value = (1 - smoothing) * (total - (LOAD(DTYPE, x, at + picked * x##_step) - top)); \
        if (SMOOTHED) value += smoothing * (total - logits / length); \
    }

// The rest of a row of the gradient, PADDING elements after the classes, is 0.
#define WRITE_PADDING(dx, at) \
    for (uint i = LANE_ID; i < PADDING; i += LANES) STORE(DTYPE, (REAL)0, dx, at + (long)length + i);

// The gradient of a row without a valid class is 0 if the class is ignored, else NaN.
#define WRITE_WITHOUT_CLASS(dx, at, picked) \
    { \
        const REAL value = picked == ignored ? 0 : NAN; \
        FOR_VECTORS WRITE(dx, (V)(value), at, i); \
        FOR_TAIL STORE(DTYPE, value, dx, at + i); \
    }

// Several vectors at once: a compiler moves no load before an earlier store, since they may alias.
#define FOR_BLOCK _Pragma("unroll") for (uint k = 0, i = begin; k < ACCUMULATORS; k++, i += LANES) if (i < WHOLE)
#if ROW_VECTORS
#define WRITE_SLOPES(x, x_at, dx, dx_at, SLOPE) FOR_VECTORS WRITE(dx, SLOPE(EXP_FAST, ROW_VALUE(x, x_at)), dx_at, i);
#else
#define WRITE_SLOPES(x, x_at, dx, dx_at, SLOPE) \
    for (uint begin = LANE_ID; begin < WHOLE; begin += ACCUMULATORS * LANES) { \
        V block[ACCUMULATORS]; \
        FOR_BLOCK { \
            PREFETCH_NEXT_ROW(x, x_at) \
            block[k] = ROW_VALUE(x, x_at); \
        } \
        FOR_BLOCK { \
            PREFETCH_NEXT_RESULT(dx, dx_at) \
            WRITE(dx, SLOPE(EXP_FAST, block[k]), dx_at, i); \
        } \
    }
#endif

// Writes slope * (softmax - target distribution) of a row with a valid class.
#define SLOPE_OF(exp_fast, value) ((exp_fast((value) - top - total) - shared) * slope)
#define WRITE_GRADIENT(x, x_at, dx, dx_at, picked) \
    { \
        const REAL shared = smoothing / length; \
        WRITE_SLOPES(x, x_at, dx, dx_at, SLOPE_OF) \
        FOR_TAIL STORE(DTYPE, SLOPE_OF(EXP_FAST_SCALAR, LOAD(DTYPE, x, x_at + i)), dx, dx_at + i); \
        /* The work-item that wrote the target's element overwrites it, so no barrier is needed. */ \
        const uint hot = (uint)picked; \
        const uint owner = hot < TAIL_BEGIN ? hot / WIDTH % LANES : (hot - TAIL_BEGIN) % LANES; \
        if (LANE_ID == owner) { \
            const REAL p = EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + picked * x##_step) - top - total); \
            STORE(DTYPE, (p - shared - (1 - smoothing)) * slope, dx, dx_at + picked * dx##_step); \
        } \
    }

#endif
