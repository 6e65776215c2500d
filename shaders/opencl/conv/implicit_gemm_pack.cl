// Pack weights as the left operand of conv/implicit_gemm.cl, with rows and the k axis padded with zeros to whole tiles and
// k-slices. With BF16_TERMS 0 `packed` is (group, k, row); else, per group and slice of DEPTH, (term, pair of k, row), a word
// of two HALF_TYPE numbers each, see conv/tile_accumulate.h. `k_offsets` receives, per k, the offset of its pixel from the
// window, in memory and as (y << 16 | x) in the image.
//
// Rows are (phase, channel), k is (depth, tap). Tap i of an axis is tap (phase + start + i * step) / divisor of the kernel,
// if that is an integer and in range: in an input gradient, pixels with the same remainder by the stride, the phase, get
// contributions from some taps only. With `separate` the taps of a phase are counted from its first one, so that absent
// taps occur only at the end of its k axis, and every phase has its own `k_offsets`: the last taps of a phase with
// fewer taps than others are outside the image. Otherwise the weight of a tap that is absent is -0, and other zeros are
// 0 (see conv/absent_taps.h).

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BF16_TERMS
#define BF16_TERMS 0
#endif
#ifndef HALF_TYPE
#define HALF_TYPE bfloat16
#endif
#ifndef DEPTH
#define DEPTH 16
#endif
#if BF16_TERMS
#define LEFT uint
#else
#define LEFT REAL
#endif
#include "lib/dtypes.h"
#include "conv/geometry.h"

// The taps of both axes, and the rows of a phase.
typedef struct {
    uint channels, phases_across, separate;
    int down_kernel, down_start, down_step, down_divisor, across_kernel, across_start, across_step, across_divisor;
} TapGeometry;

static inline int tap_of(int number, int divisor, int kernel_length) {
    return number >= 0 && number % divisor == 0 && number / divisor < kernel_length ? number / divisor : -1;
}

// The first i of a phase: smaller i select taps past the end of the kernel. Steps are negative, and the divisor is 1.
static inline int first_tap(int phase_start, int step, int kernel_length) {
    return max(0, (phase_start - kernel_length - step) / -step);
}

static inline ushort bits_of_float16(float value) {
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    return bits;
}
#define float_of_float16(bits) vload_half(0, (const half *)&(bits))
#define bits_of_bfloat16(value) bfloat16_of_float(value)

__kernel void conv_implicit_gemm_pack(__global LEFT *packed, __global int2 *k_offsets,
                                      __global const STORAGE(DTYPE) *weight, const ulong weight_offset,
                                      const uint padded_m, const uint padded_k, const ConvGeometry geometry,
                                      const TapGeometry kernel_taps) {
    // A work-item packs one number, or two consecutive k of a row.
    const uint row = get_global_id(0), line = get_global_id(1), group = get_global_id(2);
    const uint each = BF16_TERMS ? 2 : 1;
    if (row >= padded_m || line >= padded_k / each) return;
    const uint channels = kernel_taps.channels, phases_across = kernel_taps.phases_across;
    const uint taps_across = geometry.term_width, taps = geometry.term_height * taps_across;
    const int x_depth = geometry.x_term, x_down = geometry.x_down, x_across = geometry.x_across;
    const uint phase = row / channels, separate = kernel_taps.separate;
    const int down = (int)(phase / phases_across) + kernel_taps.down_start;
    const int across = (int)(phase % phases_across) + kernel_taps.across_start;
    const int first_i = separate ? first_tap(down, kernel_taps.down_step, kernel_taps.down_kernel) : 0;
    const int first_j = separate ? first_tap(across, kernel_taps.across_step, kernel_taps.across_kernel) : 0;
    REAL values[2];
    bool absent[2];
    for (uint e = 0; e < each; e++) {
        const uint k = line * each + e, tap = k % taps;
        const int i = tap / taps_across + first_i, j = tap % taps_across + first_j;
        const int r = tap_of(down + i * kernel_taps.down_step, kernel_taps.down_divisor, kernel_taps.down_kernel);
        const int s = tap_of(across + j * kernel_taps.across_step, kernel_taps.across_divisor, kernel_taps.across_kernel);
        const bool exists = r >= 0 && s >= 0;
        if (group == 0 && (separate ? row % channels == 0 && row < geometry.m : row == 0)) {
            const int y = i * geometry.term_step_y, x = j * geometry.term_step_x;
            k_offsets[(separate ? phase * padded_k : 0) + k] =
                k < geometry.k && (exists || !separate)
                    ? (int2)((int)(k / taps) * x_depth + y * x_down + x * x_across, y << 16 | x)
                    : (int2)(0, 0x7fff0000);
        }
        absent[e] = row < geometry.m && k < geometry.k && !exists;
        values[e] = row < geometry.m && k < geometry.k && exists
                        ? LOAD(DTYPE, weight, (long)weight_offset + group * geometry.a_group +
                                                  row % channels * geometry.a_row + k / taps * geometry.a_term0 +
                                                  r * geometry.a_term1 + s * geometry.a_term2)
                        : (REAL)0;
    }
#if BF16_TERMS
    const uint packed_line = line / (DEPTH / 2) * BF16_TERMS * (DEPTH / 2) + line % (DEPTH / 2);
    packed += ((ulong)group * (padded_k / 2 * BF16_TERMS) + packed_line) * padded_m + row;
    for (uint term = 0; term < BF16_TERMS; term++) {
        uint word = 0;
        for (uint e = 0; e < 2; e++) {
            ushort bits = CONCAT(bits_of_, HALF_TYPE)(values[e]);
            float value = CONCAT(float_of_, HALF_TYPE)(bits);
            // A number that would round to infinity is truncated instead, and infinity leaves no remainder.
            if (BF16_TERMS > 1 && IS_INFINITE(float, value) && !IS_INFINITE(float, values[e])) {
                bits--;
                value = CONCAT(float_of_, HALF_TYPE)(bits);
            }
            if (term == 0 && (absent[e] || bits == 0x8000)) bits = absent[e] ? 0x8000 : 0;
            word |= (uint)bits << 16 * e;
            values[e] = IS_FINITE(float, value) ? values[e] - value : 0;
        }
        packed[(ulong)term * (DEPTH / 2) * padded_m] = word;
    }
#else
    packed[((ulong)group * padded_k + line) * padded_m + row] = absent[0] ? -(REAL)0 : values[0] == 0 ? (REAL)0 : values[0];
#endif
}
