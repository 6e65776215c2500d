// Puts together what the groups of attention/decode.cl made of the runs of keys of each query: a part is e sums, the maximum that was taken
// from its scores and the sum of its exponentials. A work-item makes one feature of one query.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#include "lib/dtypes.h"

__kernel void attention_decode_reduce(__global const REAL *parts, __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                             __global REAL *lse, const ulong lse_offset, const uint rows, const uint e, const uint count) {
    const uint c = get_global_id(0), row = get_global_id(1);
    if (c >= e || row >= rows) return;
    const uint pitch = e + 2;
    parts += (ulong)row * count * pitch;
    REAL top = -INFINITY;
    for (uint part = 0; part < count; part++) top = fmax(top, parts[part * pitch + e]);
    const REAL subtracted = top == -INFINITY ? 0 : top;
    REAL total = 0, sum = 0;
    for (uint part = 0; part < count; part++) {
        const REAL share = exp(parts[part * pitch + e] - subtracted);
        total += share * parts[part * pitch + e + 1];
        sum += share * parts[part * pitch + c];
    }
    STORE(OUT_DTYPE, total == 0 ? 0 : sum / total, out, out_offset + (ulong)row * e + c);
    if (c == 0) lse[lse_offset + row] = log(total) + subtracted;
}
