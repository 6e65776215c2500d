// Discrete Fourier transforms of rows of LENGTH numbers that a group exchanges in local memory between stages of butterflies, in
// the order of Stockham (Govindaraju et al. 2008): no bit reversal, and neighbouring work-items work on neighbouring elements.
//
// A group has LANES rows and WORKERS work-items for each. On load and on store, neighbouring work-items have neighbouring elements
// of a row, or with LANES_FIRST_LOAD and LANES_FIRST_STORE neighbouring rows: whichever are neighbours in memory. With PLANES 2 real and
// imaginary parts are exchanged at once, with half the barriers.

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
#ifndef RADIX_7
#define RADIX_7 1
#endif
#ifndef LANES
#define LANES 8
#endif
#ifndef WORKERS
#define WORKERS 8
#endif
#ifndef REGISTERS
#define REGISTERS 8
#endif
#ifndef PLANES
#define PLANES 1
#endif
#ifndef LANES_FIRST_LOAD
#define LANES_FIRST_LOAD 0
#endif
#ifndef LANES_FIRST_STORE
#define LANES_FIRST_STORE 0
#endif
// 1 if the elements of a row are neighbours in memory.
#ifndef SOURCE_UNIT
#define SOURCE_UNIT 0
#endif
#ifndef TARGET_UNIT
#define TARGET_UNIT 0
#endif
// 1 if the elements of a row are less than 2^31 elements apart in memory.
#ifndef NARROW
#define NARROW 0
#endif
// 1 if every group has LANES rows.
#ifndef WHOLE_BLOCKS
#define WHOLE_BLOCKS 0
#endif
#include "fft/elements.h"
#include "lib/dependent_launch.h"
#define N REAL
#include "fft/butterflies.h"

#define GROUP (LANES * WORKERS)
#define POWER_OF_TWO ((LENGTH & (LENGTH - 1)) == 0)
// Rows in local memory are padded so that neither neighbouring elements nor butterflies of a stage share a bank: by an element after
// every 32, or 16 if neighbouring work-items begin with neighbouring rows. At a power of two the results of butterflies over
// `span` < 32 elements have more after every `block`, and every distance of elements has one distance in local memory.
#define STEP (POWER_OF_TWO && LANES_FIRST_LOAD ? 16 : 32)
#define MORE(block, span) \
    (POWER_OF_TWO && !LANES_FIRST_LOAD && (span) > 1 && (span) < 32 && (block) >= 32 ? ((span) + 32 - (block) / 32 % 32) % 32 : 0)
#define PADDED(k, block, span) ((k) + (k) / STEP + (k) / (block)*MORE(block, span))
#define BEHIND(k, distance, block, span) \
    (POWER_OF_TWO ? PADDED(k, block, span) + PADDED(distance, block, span) : PADDED((k) + (distance), block, span))
#define ROW ((LENGTH + LENGTH / 32 + (POWER_OF_TWO ? LENGTH / 4 : 0) + 31) / 32 * 32 + (LANES < 32 ? 32 / LANES : 1))

#define SPAN_1 (RADIX_0)
#define SPAN_2 (SPAN_1 * RADIX_1)
#define SPAN_3 (SPAN_2 * RADIX_2)
#define SPAN_4 (SPAN_3 * RADIX_3)
#define SPAN_5 (SPAN_4 * RADIX_4)
#define SPAN_6 (SPAN_5 * RADIX_5)
#define SPAN_7 (SPAN_6 * RADIX_6)

// Each butterfly j of a work-item, with its registers r and i.
#define BUTTERFLIES(radix) (LENGTH / (radix))
#define FOR_BUTTERFLIES(radix, worker)                                                                     \
    _Pragma("unroll") for (uint b = 0, j = worker; b < (BUTTERFLIES(radix) + WORKERS - 1) / WORKERS; b++, j += WORKERS) \
        if (BUTTERFLIES(radix) % WORKERS == 0 || j < BUTTERFLIES(radix))
#define EACH(radix) _Pragma("unroll") for (uint c = 0; c < (radix); c++)

// Roots of unity by which a stage multiplies its elements: before it, transforms of `span` elements are complete.
#define GET_ROOTS(radix, span, worker)                           \
    FOR_BUTTERFLIES(radix, worker)                               \
    _Pragma("unroll") for (uint c = 1; c < (radix); c++)         \
        roots[b * (radix) + c] = table[(span)-RADIX_0 + (c - 1) * (span) + j % (span)];
#define STAGE(radix, span, worker)                                    \
    FOR_BUTTERFLIES(radix, worker) {                                  \
        REAL *r = re + b * (radix), *i = im + b * (radix);            \
        if ((span) > 1) {                                             \
            _Pragma("unroll") for (uint c = 1; c < (radix); c++) {    \
                const REAL_2 w = roots[b * (radix) + c];              \
                ROTATE(REAL, r[c], i[c], w.x, w.y)                    \
            }                                                         \
        }                                                             \
        BUTTERFLY(radix)(r, i);                                       \
    }
#define PUT(plane, part, radix, span, lane, worker)                                                                   \
    FOR_BUTTERFLIES(radix, worker) {                                                                                  \
        const uint first = j / (span) * (span) * (radix) + j % (span);                                                \
        EACH(radix) exchange[((plane)*LANES + (lane)) * ROW + BEHIND(first, c * (span), (span) * (radix), span)] = part[b * (radix) + c]; \
    }
#define GET(plane, part, radix, lane, worker, block, span) \
    FOR_BUTTERFLIES(radix, worker)                         \
    EACH(radix) part[b * (radix) + c] = exchange[((plane)*LANES + (lane)) * ROW + BEHIND(j, c * BUTTERFLIES(radix), block, span)];
#define WAIT barrier(CLK_LOCAL_MEM_FENCE);
#if PLANES == 2
#define EXCHANGE(radix, span, lane, worker, next, next_lane, next_worker) \
    if ((span) > 1) WAIT                                                  \
    PUT(0, re, radix, span, lane, worker)                                 \
    PUT(1, im, radix, span, lane, worker)                                 \
    WAIT                                                                  \
    GET(0, re, next, next_lane, next_worker, (span) * (radix), span)                              \
    GET(1, im, next, next_lane, next_worker, (span) * (radix), span)
#else
#define EXCHANGE(radix, span, lane, worker, next, next_lane, next_worker) \
    if ((span) > 1) WAIT                                                  \
    PUT(0, re, radix, span, lane, worker)                                 \
    WAIT                                                                  \
    GET(0, re, next, next_lane, next_worker, (span) * (radix), span)                              \
    WAIT                                                                  \
    PUT(0, im, radix, span, lane, worker)                                 \
    WAIT                                                                  \
    GET(0, im, next, next_lane, next_worker, (span) * (radix), span)
#endif
// The last stage has the work-items of the store. The roots are on their way during the exchange.
#define NEXT(radix, span, next, next_span, last)                                                          \
    GET_ROOTS(next, next_span, (last) ? store_worker : worker)                                            \
    EXCHANGE(radix, span, lane, worker, next, (last) ? store_lane : lane, (last) ? store_worker : worker) \
    STAGE(next, next_span, (last) ? store_worker : worker)

#if STAGES == 1
#define LAST RADIX_0
#elif STAGES == 2
#define LAST RADIX_1
#elif STAGES == 3
#define LAST RADIX_2
#elif STAGES == 4
#define LAST RADIX_3
#elif STAGES == 5
#define LAST RADIX_4
#elif STAGES == 6
#define LAST RADIX_5
#elif STAGES == 7
#define LAST RADIX_6
#else
#define LAST RADIX_7
#endif
#define FINAL_SPAN (LENGTH / LAST)
#if NARROW
#define OFFSET int
#else
#define OFFSET long
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void fft_local_stages(
    SOURCE, TARGET, __global const REAL_2 *table, const REAL scale, const FourierGeometry geometry) {
    __local REAL exchange[PLANES * LANES * ROW];
    const uint id = get_local_id(0), group = get_group_id(0);
    const uint block = group % geometry.blocks, index = group / geometry.blocks;
    UNPACK_OUTER(index)
    const uint lane = LANES_FIRST_LOAD ? id % LANES : id / WORKERS;
    const uint worker = LANES_FIRST_LOAD ? id / LANES : id % WORKERS;
#if STAGES > 1
    const uint store_lane = LANES_FIRST_STORE ? id % LANES : id / WORKERS;
    const uint store_worker = LANES_FIRST_STORE ? id / LANES : id % WORKERS;
#else
    const uint store_lane = lane, store_worker = worker;
#endif
    REAL re[REGISTERS], im[REGISTERS];
    REAL_2 roots[REGISTERS];
    START_NEXT
    AWAIT_INPUTS
    const uint row = block * LANES + lane;
    source_re += LANE_BEGIN(source_re, row);
    const OFFSET re_step = SOURCE_UNIT ? 1 : (OFFSET)geometry.source_re_strides[5];
#if SOURCE_IM
    source_im += LANE_BEGIN(source_im, row);
    const OFFSET im_step = SOURCE_UNIT ? 1 : (OFFSET)geometry.source_im_strides[5];
#endif
    const uint position = o3 * geometry.source_position[0] + row * geometry.source_position[1];
    FOR_BUTTERFLIES(RADIX_0, worker) {
        EACH(RADIX_0) {
            const OFFSET e = j + c * BUTTERFLIES(RADIX_0);
            REAL x_re = 0, x_im = 0;
            if (WHOLE_BLOCKS || row < geometry.lanes) {
                LOAD_ELEMENT(x_re, x_im, e * re_step, e * im_step, position + (uint)e * geometry.source_position[2])
            }
            re[b * RADIX_0 + c] = x_re;
            im[b * RADIX_0 + c] = x_im;
        }
    }
    STAGE(RADIX_0, 1, worker)
#if STAGES > 1
    NEXT(RADIX_0, 1, RADIX_1, SPAN_1, STAGES == 2)
#endif
#if STAGES > 2
    NEXT(RADIX_1, SPAN_1, RADIX_2, SPAN_2, STAGES == 3)
#endif
#if STAGES > 3
    NEXT(RADIX_2, SPAN_2, RADIX_3, SPAN_3, STAGES == 4)
#endif
#if STAGES > 4
    NEXT(RADIX_3, SPAN_3, RADIX_4, SPAN_4, STAGES == 5)
#endif
#if STAGES > 5
    NEXT(RADIX_4, SPAN_4, RADIX_5, SPAN_5, STAGES == 6)
#endif
#if STAGES > 6
    NEXT(RADIX_5, SPAN_5, RADIX_6, SPAN_6, STAGES == 7)
#endif
#if STAGES > 7
    NEXT(RADIX_6, SPAN_6, RADIX_7, SPAN_7, STAGES == 8)
#endif
    const uint last_row = block * LANES + store_lane;
#if TARGET_RE
    target_re += LANE_BEGIN(target_re, last_row);
    const OFFSET to_re = TARGET_UNIT ? 1 : (OFFSET)geometry.target_re_strides[5];
#endif
#if TARGET_IM
    target_im += LANE_BEGIN(target_im, last_row);
    const OFFSET to_im = TARGET_UNIT ? 1 : (OFFSET)geometry.target_im_strides[5];
#endif
#if HALF_TARGET
    // The mirror images, by the positions of the stage: element LENGTH - k, or 0 for 0.
    REAL mirror_re[REGISTERS], mirror_im[REGISTERS];
#define GET_MIRRORS(plane, part)                            \
    FOR_BUTTERFLIES(LAST, store_worker) EACH(LAST) {        \
        const uint k = j + c * BUTTERFLIES(LAST);           \
        part[b * LAST + c] = exchange[((plane)*LANES + store_lane) * ROW + PADDED(k == 0 ? 0 : LENGTH - k, LENGTH, FINAL_SPAN)]; \
    }
    WAIT
    PUT(0, re, LAST, FINAL_SPAN, store_lane, store_worker)
#if PLANES == 2
    PUT(1, im, LAST, FINAL_SPAN, store_lane, store_worker)
    WAIT
    GET_MIRRORS(0, mirror_re)
    GET_MIRRORS(1, mirror_im)
#else
    WAIT
    GET_MIRRORS(0, mirror_re)
    WAIT
    PUT(0, im, LAST, FINAL_SPAN, store_lane, store_worker)
    WAIT
    GET_MIRRORS(0, mirror_im)
#endif
#endif
    const uint to_position = o3 * geometry.target_position[0] + last_row * geometry.target_position[1];
    if (!WHOLE_BLOCKS && last_row >= geometry.lanes) return;
#if TWIDDLED
    // Roots to the powers lane FINAL_SPAN c: from the table for c = 1, 2, 4, .., else products. Element k = j + c FINAL_SPAN is
    // multiplied by such a root and by the root to the power lane j.
    REAL_2 powers[LAST];
    _Pragma("unroll") for (uint c = 1; c < LAST; c++) {
        const uint high = c >= 8 ? 8 : c >= 4 ? 4 : c >= 2 ? 2 : 1;
        if (c == high) {
            powers[c] = root(table, geometry.fine, geometry.coarse, geometry.fine_bits, last_row * FINAL_SPAN * c);
        } else {
            REAL_2 w = powers[high];
            ROTATE(REAL, w.x, w.y, powers[c - high].x, powers[c - high].y)
            powers[c] = w;
        }
    }
#endif
    FOR_BUTTERFLIES(LAST, store_worker) {
#if TWIDDLED
        const REAL_2 begin = root(table, geometry.fine, geometry.coarse, geometry.fine_bits, last_row * j);
#endif
        EACH(LAST) {
            const uint k = j + c * FINAL_SPAN;
            REAL y_re = re[b * LAST + c], y_im = im[b * LAST + c];
#if TWIDDLED
            ROTATE(REAL, y_re, y_im, begin.x, begin.y)
            if (c > 0) ROTATE(REAL, y_re, y_im, powers[c].x, powers[c].y)
#endif
#if HALF_TARGET
            STORE_HALF(y_re, y_im, mirror_re[b * LAST + c], mirror_im[b * LAST + c], (OFFSET)k * to_re, (OFFSET)k * to_im, k)
#else
            STORE_ELEMENT(y_re, y_im, (OFFSET)k * to_re, (OFFSET)k * to_im, to_position + k * geometry.target_position[2])
#endif
        }
    }
}
