// Discrete Fourier transforms for CPUs: a work-item transforms WIDTH neighbouring rows of LENGTH numbers at a time, one in each lane of
// its vectors, from buffer to buffer in stages of butterflies in the order of Stockham.
//
// SOURCE_ORDER and TARGET_ORDER are the memory's: 1 if neighbouring rows are neighbours, 2 if neighbouring elements are (squares are
// transposed in registers), 0 if neither. Those of the source may be SOURCE_STEP 2 apart: parts of interleaved numbers.

#ifndef LENGTH
#define LENGTH 64
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef RADIX_0
#define RADIX_0 8
#endif
#ifndef RADIX_1
#define RADIX_1 8
#endif
#ifndef RADIX_2
#define RADIX_2 1
#endif
#ifndef RADIX_3
#define RADIX_3 1
#endif
#ifndef RADIX_4
#define RADIX_4 1
#endif
#ifndef RADIX_5
#define RADIX_5 1
#endif
#ifndef RADIX_6
#define RADIX_6 1
#endif
#ifndef WIDTH
#define WIDTH 8
#endif
#ifndef SOURCE_ORDER
#define SOURCE_ORDER 0
#endif
#ifndef SOURCE_STEP
#define SOURCE_STEP 1
#endif
#ifndef TARGET_ORDER
#define TARGET_ORDER 0
#endif
// 1 if neighbouring elements of the target are pairs of an imaginary and a real part, in this order.
#ifndef TARGET_PAIRS
#define TARGET_PAIRS 0
#endif
// 1 if a row is a whole transform, so that an element's index is its position.
#ifndef WHOLE_ROWS
#define WHOLE_ROWS 1
#endif
#include "fft/elements.h"
#include "lib/vectors.h"
typedef VEC(REAL) V;
#define N V
#include "fft/butterflies.h"
#include "lib/register_transpose.h"

#define SPAN_1 (RADIX_0)
#define SPAN_2 (SPAN_1 * RADIX_1)
#define SPAN_3 (SPAN_2 * RADIX_2)
#define SPAN_4 (SPAN_3 * RADIX_3)
#define SPAN_5 (SPAN_4 * RADIX_4)
#define SPAN_6 (SPAN_5 * RADIX_5)
#define EACH(radix) _Pragma("unroll") for (uint c = 0; c < (radix); c++)
#define LANE(v, i) (((__private REAL *)&(v))[i])

// Before a stage, transforms of `span` elements are complete.
#define STAGE(radix, span, from_re, from_im, to_re, to_im)                                         \
    for (uint p = 0; p < LENGTH / (radix) / (span); p++) {                                         \
        for (uint q = 0; q < (span); q++) {                                                        \
            V r[radix], i[radix];                                                                  \
            EACH(radix) {                                                                          \
                r[c] = from_re[p * (span) + q + c * (LENGTH / (radix))];                           \
                i[c] = from_im[p * (span) + q + c * (LENGTH / (radix))];                           \
            }                                                                                      \
            if ((span) > 1) {                                                                      \
                _Pragma("unroll") for (uint c = 1; c < (radix); c++) {                             \
                    const REAL_2 w = table[(span)-RADIX_0 + (c - 1) * (span) + q];                 \
                    ROTATE(V, r[c], i[c], w.x, w.y)                                                \
                }                                                                                  \
            }                                                                                      \
            BUTTERFLY(radix)(r, i);                                                                \
            EACH(radix) {                                                                          \
                to_re[p * (span) * (radix) + q + c * (span)] = r[c];                               \
                to_im[p * (span) * (radix) + q + c * (span)] = i[c];                               \
            }                                                                                      \
        }                                                                                          \
    }

// Elements of a row in memory.
#define SPECIAL_SOURCE (HALF_SOURCE || SOURCE_CUT || SOURCE_FACTORS)
#define SPECIAL_TARGET (TARGET_CUT || TARGET_FACTORS)
#if SOURCE_CUT && WHOLE_ROWS
#define SOURCE_COUNT geometry.source_count
#else
#define SOURCE_COUNT LENGTH
#endif
#if HALF_SOURCE == 1
#define SOURCE_ELEMENTS (SOURCE_COUNT + 1)
#elif HALF_SOURCE == 2
#define SOURCE_ELEMENTS (SOURCE_COUNT / 2 + 1)
#else
#define SOURCE_ELEMENTS SOURCE_COUNT
#endif
#if HALF_TARGET
#define TARGET_ELEMENTS (LENGTH + 1)
#elif TARGET_CUT && WHOLE_ROWS
#define TARGET_ELEMENTS geometry.target_count
#else
#define TARGET_ELEMENTS LENGTH
#endif

#if SOURCE_ORDER == 2 || TARGET_ORDER == 2 || TARGET_PAIRS
// Not inlined: its copies would take most of the compilation.
static __attribute__((noinline)) void transpose(__private V *square) { TRANSPOSE(square) }
#else
#define transpose(square)
#endif

#if SOURCE_STEP == 2
// The second load begins one element early, since it must not reach beyond the last one.
FORCE_INLINE V every_other(__global const REAL *p) {
    const V low = VECTOR_LOAD(REAL, p), high = VECTOR_LOAD(REAL, p + WIDTH - 1);
    return (V)(low.even, high.odd);
}
#define LOAD_NEIGHBOURS(p) every_other(p)
#else
#define LOAD_NEIGHBOURS(p) VECTOR_LOAD(REAL, p)
#endif

// Moves elements between memory and the vectors `part`, of `count` rows.
#define LOAD_ROWS(part, memory, at, strides)                                                                          \
    {                                                                                                                 \
        uint e = 0;                                                                                                   \
        if (SOURCE_ORDER == 1 && count == WIDTH) {                                                                    \
            for (; e < SOURCE_ELEMENTS; e++) part[e] = LOAD_NEIGHBOURS(memory + (at) + (long)e * strides[5]);         \
        } else if (SOURCE_ORDER == 2 && count == WIDTH) {                                                             \
            for (; e + WIDTH <= SOURCE_ELEMENTS; e += WIDTH) {                                                        \
                V square[WIDTH];                                                                                      \
                EACH(WIDTH) square[c] = LOAD_NEIGHBOURS(memory + (at) + SOURCE_STEP * e + (long)c * strides[4]);      \
                transpose(square);                                                                                    \
                EACH(WIDTH) part[e + c] = square[c];                                                                  \
            }                                                                                                         \
        }                                                                                                             \
        for (; e < SOURCE_ELEMENTS; e++) {                                                                            \
            V values = 0;                                                                                             \
            for (uint c = 0; c < count; c++) LANE(values, c) = memory[(at) + (long)e * strides[5] + (long)c * strides[4]]; \
            part[e] = values;                                                                                         \
        }                                                                                                             \
    }
#define STORE_ROWS(part, memory, at, strides)                                                                          \
    {                                                                                                                  \
        uint e = 0;                                                                                                    \
        if (TARGET_ORDER == 1 && count == WIDTH) {                                                                     \
            for (; e < TARGET_ELEMENTS; e++) VECTOR_STORE(REAL, part[e], memory + (at) + (long)e * strides[5]);        \
        } else if (TARGET_ORDER == 2 && count == WIDTH) {                                                              \
            for (; e + WIDTH <= TARGET_ELEMENTS; e += WIDTH) {                                                         \
                V square[WIDTH];                                                                                       \
                EACH(WIDTH) square[c] = part[e + c];                                                                   \
                transpose(square);                                                                                     \
                EACH(WIDTH) VECTOR_STORE(REAL, square[c], memory + (at) + e + (long)c * strides[4]);                   \
            }                                                                                                          \
        }                                                                                                              \
        for (; e < TARGET_ELEMENTS; e++) {                                                                             \
            V values = part[e];                                                                                        \
            for (uint c = 0; c < count; c++) memory[(at) + (long)e * strides[5] + (long)c * strides[4]] = LANE(values, c); \
        }                                                                                                              \
    }
#define STORE_PAIRS(first, second, memory, at, strides)                                                                 \
    {                                                                                                                   \
        uint e = 0;                                                                                                     \
        for (; e + WIDTH <= TARGET_ELEMENTS && count == WIDTH; e += WIDTH) {                                            \
            V a[WIDTH], b[WIDTH];                                                                                       \
            EACH(WIDTH) a[c] = first[e + c];                                                                            \
            EACH(WIDTH) b[c] = second[e + c];                                                                           \
            transpose(a);                                                                                               \
            transpose(b);                                                                                               \
            EACH(WIDTH) {                                                                                               \
                V low, high;                                                                                            \
                low.even = a[c].lo;                                                                                     \
                low.odd = b[c].lo;                                                                                      \
                high.even = a[c].hi;                                                                                    \
                high.odd = b[c].hi;                                                                                     \
                VECTOR_STORE(REAL, low, memory + (at) + 2 * e + (long)c * strides[4]);                                  \
                VECTOR_STORE(REAL, high, memory + (at) + 2 * e + WIDTH + (long)c * strides[4]);                         \
            }                                                                                                           \
        }                                                                                                               \
        for (; e < TARGET_ELEMENTS; e++) {                                                                              \
            V a = first[e], b = second[e];                                                                              \
            for (uint c = 0; c < count; c++) {                                                                          \
                memory[(at) + 2 * e + (long)c * strides[4]] = LANE(a, c);                                               \
                memory[(at) + 2 * e + 1 + (long)c * strides[4]] = LANE(b, c);                                           \
            }                                                                                                           \
        }                                                                                                               \
    }
#define HALF_ROOT(k) root(table, geometry.half_fine, geometry.half_coarse, geometry.half_bits, k)

// An inverse transform's operand from half a spectrum, with parts exchanged; see fft/elements.h.
#define COMBINE_HALVES                                                                                   \
    for (uint k = 0; k <= SOURCE_COUNT / 2; k++) {                                                       \
        const uint m = SOURCE_COUNT - k;                                                                 \
        if (k == 0) a_im[0] = a_im[m] = 0;                                                               \
        const REAL_2 w = HALF_ROOT(k);                                                                   \
        const V s_re = a_re[k] + a_re[m], s_im = a_im[k] - a_im[m], d_re = a_re[k] - a_re[m], d_im = a_im[k] + a_im[m]; \
        const V t_re = d_re * w.x + d_im * w.y, t_im = d_im * w.x - d_re * w.y;                          \
        a_im[k] = s_re - t_im;                                                                           \
        a_re[k] = s_im + t_re;                                                                           \
        a_im[m] = s_re + t_im;                                                                           \
        a_re[m] = t_re - s_im;                                                                           \
    }
#define MIRROR_HALVES                              \
    a_im[0] = 0;                                   \
    for (uint k = 0; k <= SOURCE_COUNT / 2; k++) { \
        const V real_part = a_re[k];               \
        a_re[k] = a_im[k];                         \
        a_im[k] = real_part;                       \
        if (k > 0) {                               \
            a_re[SOURCE_COUNT - k] = -a_re[k];     \
            a_im[SOURCE_COUNT - k] = real_part;    \
        }                                          \
    }

__kernel NO_AUTOVEC void fft_cpu_lanes(SOURCE, TARGET, __global const REAL_2 *table, const REAL scale, const uint blocks_each,
                                       const uint all_blocks, const FourierGeometry geometry) {
    V a_re[LENGTH + 1], a_im[LENGTH + 1], b_re[LENGTH + 1], b_im[LENGTH + 1];
    const uint first = get_global_id(0) * blocks_each;
    for (uint number = first; number < min(first + blocks_each, all_blocks); number++) {
        const uint block = number % geometry.blocks, index = number / geometry.blocks;
        UNPACK_OUTER(index)
        const uint row = block * WIDTH, count = min((uint)WIDTH, geometry.lanes - row);
        const long at_re = LANE_BEGIN(source_re, row);
#if SOURCE_IM
        const long at_im = LANE_BEGIN(source_im, row);
#endif
#if SPECIAL_SOURCE && !WHOLE_ROWS
        for (uint e = 0; e < LENGTH; e++) {
            V x_re = 0, x_im = 0;
            for (uint c = 0; c < count; c++) {
                const uint position = o3 * geometry.source_position[0] + (row + c) * geometry.source_position[1] + e * geometry.source_position[2];
                REAL one_re, one_im;
                LOAD_ELEMENT(one_re, one_im, at_re + (long)e * geometry.source_re_strides[5] + (long)c * geometry.source_re_strides[4],
                             at_im + (long)e * geometry.source_im_strides[5] + (long)c * geometry.source_im_strides[4], position)
                LANE(x_re, c) = one_re;
                LANE(x_im, c) = one_im;
            }
            a_re[e] = x_re;
            a_im[e] = x_im;
        }
#else
        LOAD_ROWS(a_re, source_re, at_re, geometry.source_re_strides)
#if SOURCE_IM
        LOAD_ROWS(a_im, source_im, at_im, geometry.source_im_strides)
#else
        for (uint e = 0; e < SOURCE_ELEMENTS; e++) a_im[e] = 0;
#endif
#if HALF_SOURCE == 1
        COMBINE_HALVES
#elif HALF_SOURCE == 2
        MIRROR_HALVES
#endif
#if SOURCE_CUT
        for (uint e = SOURCE_COUNT; e < LENGTH; e++) a_re[e] = a_im[e] = 0;
#endif
#if SOURCE_FACTORS
        for (uint e = 0; e < SOURCE_COUNT; e++) {
            const REAL_2 factor = table[geometry.source_factors + e];
            ROTATE(V, a_re[e], a_im[e], factor.x, factor.y)
        }
#endif
#endif
        STAGE(RADIX_0, 1, a_re, a_im, b_re, b_im)
#if STAGES > 1
        STAGE(RADIX_1, SPAN_1, b_re, b_im, a_re, a_im)
#endif
#if STAGES > 2
        STAGE(RADIX_2, SPAN_2, a_re, a_im, b_re, b_im)
#endif
#if STAGES > 3
        STAGE(RADIX_3, SPAN_3, b_re, b_im, a_re, a_im)
#endif
#if STAGES > 4
        STAGE(RADIX_4, SPAN_4, a_re, a_im, b_re, b_im)
#endif
#if STAGES > 5
        STAGE(RADIX_5, SPAN_5, b_re, b_im, a_re, a_im)
#endif
#if STAGES > 6
        STAGE(RADIX_6, SPAN_6, a_re, a_im, b_re, b_im)
#endif
#if STAGES % 2
#define RESULT_RE b_re
#define RESULT_IM b_im
#else
#define RESULT_RE a_re
#define RESULT_IM a_im
#endif
#if HALF_TARGET
        for (uint k = 0; k <= LENGTH / 2; k++) {
            const uint m = LENGTH - k, mirror = k == 0 ? 0 : m;
            const REAL_2 w = HALF_ROOT(k);
            const V z_re = RESULT_RE[k], z_im = RESULT_IM[k], y_re = RESULT_RE[mirror], y_im = RESULT_IM[mirror];
            const V s_re = z_re + y_re, s_im = z_im - y_im, d_re = z_re - y_re, d_im = z_im + y_im;
            const V t_re = w.x * d_im + w.y * d_re, t_im = w.x * d_re - w.y * d_im;
            RESULT_RE[k] = (s_re + t_re) * LITERAL(0.5);
            RESULT_IM[k] = (s_im - t_im) * LITERAL(0.5);
            RESULT_RE[m] = (s_re - t_re) * LITERAL(0.5);
            RESULT_IM[m] = (-s_im - t_im) * LITERAL(0.5);
        }
#endif
#if TWIDDLED
        // A root of the first lane, times those of the others relative to it.
        __global const REAL *lane_roots = (__global const REAL *)(table + geometry.lane_roots);
        for (uint k = 0; k < LENGTH; k++) {
            const REAL_2 w = root(table, geometry.fine, geometry.coarse, geometry.fine_bits, row * k);
            V x = VECTOR_LOAD(REAL, lane_roots + 2 * k * WIDTH), y = VECTOR_LOAD(REAL, lane_roots + (2 * k + 1) * WIDTH);
            ROTATE(V, x, y, w.x, w.y)
            ROTATE(V, RESULT_RE[k], RESULT_IM[k], x, y)
        }
#endif
#if TARGET_RE
        const long to_re = LANE_BEGIN(target_re, row);
#endif
#if TARGET_IM
        const long to_im = LANE_BEGIN(target_im, row);
#endif
#if SPECIAL_TARGET && !WHOLE_ROWS
        for (uint k = 0; k < LENGTH; k++) {
            V x_re = RESULT_RE[k], x_im = RESULT_IM[k];
            for (uint c = 0; c < count; c++) {
                const uint position = o3 * geometry.target_position[0] + (row + c) * geometry.target_position[1] + k * geometry.target_position[2];
                REAL one_re = LANE(x_re, c), one_im = LANE(x_im, c);
                STORE_ELEMENT(one_re, one_im, to_re + (long)k * geometry.target_re_strides[5] + (long)c * geometry.target_re_strides[4],
                               to_im + (long)k * geometry.target_im_strides[5] + (long)c * geometry.target_im_strides[4], position)
            }
        }
#else
        for (uint k = 0; k < TARGET_ELEMENTS; k++) {
#if TARGET_FACTORS
            const REAL_2 factor = table[geometry.target_factors + k];
            ROTATE(V, RESULT_RE[k], RESULT_IM[k], factor.x, factor.y)
#endif
            RESULT_RE[k] *= scale;
            RESULT_IM[k] *= scale;
        }
#if TARGET_PAIRS
        STORE_PAIRS(RESULT_IM, RESULT_RE, target_im, to_im, geometry.target_im_strides)
#else
#if TARGET_RE
        STORE_ROWS(RESULT_RE, target_re, to_re, geometry.target_re_strides)
#endif
#if TARGET_IM
        STORE_ROWS(RESULT_IM, target_im, to_im, geometry.target_im_strides)
#endif
#endif
#endif
    }
}
