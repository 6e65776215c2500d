// Combine the partial results of attention/decode.cl: per query and split, e accumulated features, the maximum of the
// scores, and the sum of their exponentials. A work-item makes one feature of one query.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#include "attention/geometry.h"

__kernel void attention_decode_reduce(__global const REAL *partial, __global STORAGE(OUT_DTYPE) *out,
                                      const ulong out_offset, __global REAL *lse, const ulong lse_offset,
                                      const uint rows, const uint e, const uint splits) {
    const uint c = get_global_id(0), row = get_global_id(1);
    if (c >= e || row >= rows) return;
    const uint pitch = e + 2;
    partial += (ulong)row * splits * pitch;
    REAL total_max = -INFINITY;
    for (uint split = 0; split < splits; split++) total_max = fmax(total_max, partial[split * pitch + e]);
    const REAL shift = total_max == -INFINITY ? 0 : total_max;
    REAL total_sum = 0, value = 0;
    for (uint split = 0; split < splits; split++) {
        const REAL rescale = exp(partial[split * pitch + e] - shift);
        total_sum += rescale * partial[split * pitch + e + 1];
        value += rescale * partial[split * pitch + c];
    }
    STORE(OUT_DTYPE, total_sum == 0 ? 0 : value / total_sum, out, out_offset + (ulong)row * e + c);
    if (c == 0) STORE_LOGSUMEXP(lse + lse_offset + 2 * (ulong)row, total_max, total_sum)
}
