// Weights as the left operand of conv/implicit_gemm.cl: rows and terms are padded with zeros to whole tiles and strips. With PARTS 0 `packed`
// is (group, term, row); else, per group and strip of DEPTH terms, (part, pair of terms, row), a word of two HALF_TYPE
// numbers each, see conv/tile_accumulate.h. `terms` tells how far the pixel of each term is from the place of a window, in memory and
// (down << 16 | across) in the image.
//
// Rows are numbered (phase, channel), terms (depth, tap). Tap number i of an axis stands for tap
// (phase + start + i * step) / divisor of the weight, if there is such a one: in a gradient of the input, pixels with the
// same remainder by the stride, the phase, are reached by some taps only.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef HALF_TYPE
#define HALF_TYPE bfloat16
#endif
#ifndef DEPTH
#define DEPTH 16
#endif
#if PARTS
#define LEFT uint
#else
#define LEFT REAL
#endif
#include "lib/dtypes.h"

#define AXIS(name) const int name##_kernel, const int name##_taps, const int name##_start, const int name##_step, \
                       const int name##_divisor, const int name##_reach

inline int tap_of(int number, int divisor, int kernel_length) {
    return number >= 0 && number % divisor == 0 && number / divisor < kernel_length ? number / divisor : -1;
}

inline ushort bits_of_float16(float value) {
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    return bits;
}
#define float_of_float16(bits) vload_half(0, (const half *)&(bits))
#define bits_of_bfloat16(value) bfloat16_of_float(value)

#define WEIGHTS                                                                                                       \
    __global const STORAGE(DTYPE) *weight, const ulong weight_offset, const uint m, const uint k, const uint channels, \
        const uint depth, const uint phases_across, const long weight_group, const long weight_row,                  \
        const long weight_depth, const long weight_down, const long weight_across, AXIS(down), AXIS(across)

__kernel void conv_implicit_gemm_pack(__global LEFT *packed, __global int2 *terms, const uint padded_m, const uint padded_k,
                              const int x_depth, const int x_down, const int x_across, WEIGHTS) {
    // A work-item packs one number, or two terms of a row.
    const uint row = get_global_id(0), line = get_global_id(1), group = get_global_id(2);
    const uint each = PARTS ? 2 : 1;
    if (row >= padded_m || line >= padded_k / each) return;
    const uint phase = row / channels, window = down_taps * across_taps;
    REAL values[2];
    for (uint e = 0; e < each; e++) {
        const uint term = line * each + e, tap = term % window;
        const int i = tap / across_taps, j = tap % across_taps;
        if (row == 0 && group == 0) {
            const int y = i * down_reach, x = j * across_reach;
            terms[term] = term < k ? (int2)((int)(term / window) * x_depth + y * x_down + x * x_across, y << 16 | x)
                                   : (int2)(0, 0x7fff0000);
        }
        const int r = tap_of((int)(phase / phases_across) + down_start + i * down_step, down_divisor, down_kernel);
        const int s = tap_of((int)(phase % phases_across) + across_start + j * across_step, across_divisor, across_kernel);
        values[e] = row < m && term < k && r >= 0 && s >= 0
                        ? LOAD(DTYPE, weight, (long)weight_offset + group * weight_group + row % channels * weight_row +
                                                  term / window * weight_depth + r * weight_down + s * weight_across)
                        : (REAL)0;
    }
#if PARTS
    const uint strip = line / (DEPTH / 2) * PARTS * (DEPTH / 2) + line % (DEPTH / 2);
    packed += ((ulong)group * (padded_k / 2 * PARTS) + strip) * padded_m + row;
    for (uint part = 0; part < PARTS; part++) {
        uint word = 0;
        for (uint e = 0; e < 2; e++) {
            ushort bits = CONCAT(bits_of_, HALF_TYPE)(values[e]);
            float value = CONCAT(float_of_, HALF_TYPE)(bits);
            // What would be rounded to infinity is cut off instead, and infinity has no rest.
            if (PARTS > 1 && isinf(value) && !isinf(values[e])) {
                bits--;
                value = CONCAT(float_of_, HALF_TYPE)(bits);
            }
            word |= (uint)bits << 16 * e;
            values[e] = isfinite(value) ? values[e] - value : 0;
        }
        packed[(ulong)part * (DEPTH / 2) * padded_m] = word;
    }
#else
    packed[((ulong)group * padded_k + line) * padded_m + row] = values[0];
#endif
}
