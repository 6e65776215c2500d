// Gradient of rowwise/cross_entropy.cl with respect to the logits, from the saved logsumexp: g * (softmax - target distribution).
// A row of the result has PADDING more elements after the classes, which are 0.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#ifndef PADDING
#define PADDING 0
#endif
#include "lib/rows.h"
#include "lib/exponential.h"

#define FOR_BLOCK _Pragma("unroll") for (uint k = 0, i = begin; k < ACCUMULATORS; k++, i += LANES) if (i < WHOLE)

typedef struct {
    long g_step, target_step, lse_step, lse_part, ignored;
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(dx);
    ROW_MEMBERS;
} CrossEntropyGradGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_cross_entropy_grad(
    __global const STORAGE(GRADIENT_DTYPE) *g, const ulong g_offset, OPERAND(x),
    __global const STORAGE(INDEX_DTYPE) *target, const ulong target_offset, __global const REAL *lse,
    const ulong lse_offset, RESULT(dx), const REAL smoothing, const CrossEntropyGradGeometry geometry) {
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(dx);
    const long g_step = geometry.g_step, target_step = geometry.target_step, lse_step = geometry.lse_step;
    const long ignored = geometry.ignored;
    FOR_ROWS {
        const long x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
        const long picked = (long)target[(long)target_offset + (long)row * target_step];
        for (uint i = LANE_ID; i < PADDING; i += LANES) STORE(DTYPE, (REAL)0, dx, dx_at + (long)length + i);
        if (picked == ignored || picked < 0 || picked >= (long)length) {
            const REAL value = picked == ignored ? 0 : NAN;
            FOR_VECTORS WRITE(dx, (V)(value), dx_at, i);
            FOR_TAIL STORE(DTYPE, value, dx, dx_at + i);
            continue;
        }
        const REAL slope = LOAD(GRADIENT_DTYPE, g, (long)g_offset + (long)row * g_step);
        const long lse_at = (long)lse_offset + (long)row * lse_step;
        const REAL top = lse[lse_at], total = lse[lse_at + geometry.lse_part];
        const REAL shared = smoothing / length;
        // Several vectors at once: a compiler moves no load before an earlier store, since they may alias.
        for (uint begin = LANE_ID; begin < WHOLE; begin += ACCUMULATORS * LANES) {
            V block[ACCUMULATORS];
            FOR_BLOCK {
                PREFETCH_NEXT_ROW(x, x_at)
                block[k] = READ(x, x_at, i);
            }
            FOR_BLOCK {
                PREFETCH_NEXT_RESULT(dx, dx_at)
                WRITE(dx, (EXP_FAST(block[k] - top - total) - shared) * slope, dx_at, i);
            }
        }
        FOR_TAIL STORE(DTYPE, (EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + i) - top - total) - shared) * slope, dx, dx_at + i);
        // The work-item that wrote the target's element overwrites it, so no barrier is needed.
        const uint hot = (uint)picked;
        const uint owner = hot < TAIL_BEGIN ? hot / WIDTH % LANES : (hot - TAIL_BEGIN) % LANES;
        if (LANE_ID == owner) {
            const REAL p = EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + picked * x_step) - top - total);
            STORE(DTYPE, (p - shared - (1 - smoothing)) * slope, dx, dx_at + picked * dx_step);
        }
    }
}
