// Max pooling of windows of 2 x 2 that lie side by side and cover the image, and its gradient, on CPUs: each work-item takes
// `each` planes, and WIDTH neighbours of two rows at a time, which are half as many windows. Where rows hold whole fours of
// windows and planes whole eights, other kernels take eight windows at a time, which are two fours of neighbours.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#define MASK int
#endif
#define WIDTH 8
#define HALF 4
#include "lib/operands.h"

typedef CONCAT(REAL, HALF) Windows;
typedef CONCAT(MASK, HALF) Choice;

#define GEOMETRY const uint planes, const uint each, const uint channels, const uint down, const uint across
#define STEPS(name) const long name##_image, const long name##_channel, const long name##_row
#define PLANE_OF(name, plane) \
    (name + name##_offset + (long)((plane) / channels) * name##_image + (long)((plane) % channels) * name##_channel)
#define LAST_PLANE min((uint)get_global_id(0) * each + each, planes)
// WIDTH elements of a row, of which those of the last windows may be fewer.
#define LOAD_ROW(r, p) \
    VEC(REAL) r; \
    if (left == WIDTH) { LOAD_CONTIGUOUS(DTYPE, r, p) } else { LOAD_CONTIGUOUS_PART(DTYPE, r, p) }
#define STORE_ROW(r, p) \
    if (left == WIDTH) { STORE_CONTIGUOUS(DTYPE, r, p) } else { STORE_CONTIGUOUS_PART(DTYPE, r, p) }
// Whether `later`, behind `value` in a window, is larger; a NaN is larger than any number, and no later one than an earlier.
#define OVERTAKES(later, value) (~((later) <= (value)) & ((value) == (value)))

__kernel NO_AUTOVEC void max_pool_pairs(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                        __global STORAGE(DTYPE) *out, const ulong out_offset, GEOMETRY, STEPS(x)) {
    for (uint plane = (uint)get_global_id(0) * each; plane < LAST_PLANE; plane++) {
        __global const STORAGE(DTYPE) *upper = PLANE_OF(x, plane), *lower = upper + x_row;
        __global STORAGE(DTYPE) *to = out + out_offset + (ulong)plane * down * across;
        for (uint row = 0; row < down; row++) {
            for (uint at = 0; at < 2 * across; at += WIDTH) {
                const uint left = min((uint)WIDTH, 2 * across - at);
                LOAD_ROW(above, upper)
                LOAD_ROW(below, lower)
                Windows best = above.even;
                best = SELECT(best, above.odd, OVERTAKES(above.odd, best));
                best = SELECT(best, below.even, OVERTAKES(below.even, best));
                best = SELECT(best, below.odd, OVERTAKES(below.odd, best));
                for (uint j = 0; j < left / 2; j++) STORE(DTYPE, LANE(REAL, best, j), to, at / 2 + j);
            }
            upper += 2 * x_row;
            lower += 2 * x_row;
            to += across;
        }
    }
}

// A window's gradient goes to its first largest element: one that no later element overtakes, and that overtakes all before.
__kernel NO_AUTOVEC void max_pool_pairs_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                             __global const STORAGE(DTYPE) *x, const ulong x_offset,
                                             __global STORAGE(DTYPE) *dx, const ulong dx_offset, GEOMETRY, STEPS(g),
                                             STEPS(x)) {
    for (uint plane = (uint)get_global_id(0) * each; plane < LAST_PLANE; plane++) {
        __global const STORAGE(DTYPE) *from = PLANE_OF(g, plane), *upper = PLANE_OF(x, plane), *lower = upper + x_row;
        __global STORAGE(DTYPE) *to = dx + dx_offset + (ulong)plane * 4 * down * across, *under = to + 2 * across;
        for (uint row = 0; row < down; row++) {
            for (uint at = 0; at < 2 * across; at += WIDTH) {
                const uint left = min((uint)WIDTH, 2 * across - at);
                LOAD_ROW(above, upper)
                LOAD_ROW(below, lower)
                Windows best = above.even, slope = (Windows)(0);
                for (uint j = 0; j < left / 2; j++) LANE(REAL, slope, j) = LOAD(DTYPE, from, at / 2 + j);
                const Choice m1 = OVERTAKES(above.odd, best);
                best = SELECT(best, above.odd, m1);
                const Choice m2 = OVERTAKES(below.even, best);
                best = SELECT(best, below.even, m2);
                const Choice m3 = OVERTAKES(below.odd, best);
                // The last that overtakes takes all.
                const Windows none = (Windows)(0);
                VEC(REAL) top, bottom;
                bottom.odd = SELECT(none, slope, m3);
                slope = SELECT(slope, none, m3);
                bottom.even = SELECT(none, slope, m2);
                slope = SELECT(slope, none, m2);
                top.odd = SELECT(none, slope, m1);
                top.even = SELECT(slope, none, m1);
                STORE_ROW(top, to)
                STORE_ROW(bottom, under)
            }
            from += g_row;
            upper += 2 * x_row;
            lower += 2 * x_row;
            to += 4 * across;
            under += 4 * across;
        }
    }
}

// Of the fours of windows that begin at `first` and `second`: their upper left, upper right, lower left and lower right.
#define LOAD_WINDOWS(first, second)                                                                \
    const VEC(REAL) above0 = LOADV(DTYPE, first), above1 = LOADV(DTYPE, second);                   \
    const VEC(REAL) below0 = LOADV(DTYPE, (first) + x_row), below1 = LOADV(DTYPE, (second) + x_row); \
    const VEC(REAL) w0 = (VEC(REAL))(above0.even, above1.even), w1 = (VEC(REAL))(above0.odd, above1.odd); \
    const VEC(REAL) w2 = (VEC(REAL))(below0.even, below1.even), w3 = (VEC(REAL))(below0.odd, below1.odd);
// To the next four of windows of an image with rows of this length.
#define ADVANCE(p, length)                     \
    p += WIDTH;                                \
    if (column == across) p += 2 * (length) - 2 * across;

__kernel NO_AUTOVEC void max_pool_fours(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                        __global STORAGE(DTYPE) *out, const ulong out_offset, GEOMETRY, STEPS(x)) {
    for (uint plane = (uint)get_global_id(0) * each; plane < LAST_PLANE; plane++) {
        __global const STORAGE(DTYPE) *from = PLANE_OF(x, plane);
        __global STORAGE(DTYPE) *to = out + out_offset + (ulong)plane * down * across;
        uint column = 0;
        for (uint window = 0; window < down * across; window += WIDTH) {
            __global const STORAGE(DTYPE) *fours[2];
#pragma unroll
            for (uint i = 0; i < 2; i++) {
                fours[i] = from;
                column += HALF;
                ADVANCE(from, x_row)
                if (column == across) column = 0;
            }
            LOAD_WINDOWS(fours[0], fours[1])
            VEC(REAL) best = SELECT(w0, w1, OVERTAKES(w1, w0));
            best = SELECT(best, w2, OVERTAKES(w2, best));
            best = SELECT(best, w3, OVERTAKES(w3, best));
            STOREV(DTYPE, best, to + window);
        }
    }
}

__kernel NO_AUTOVEC void max_pool_fours_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                             __global const STORAGE(DTYPE) *x, const ulong x_offset,
                                             __global STORAGE(DTYPE) *dx, const ulong dx_offset, GEOMETRY, STEPS(g),
                                             STEPS(x)) {
    for (uint plane = (uint)get_global_id(0) * each; plane < LAST_PLANE; plane++) {
        __global const STORAGE(DTYPE) *slopes = PLANE_OF(g, plane), *from = PLANE_OF(x, plane);
        __global STORAGE(DTYPE) *to = dx + dx_offset + (ulong)plane * 4 * down * across;
        uint column = 0;
        for (uint window = 0; window < down * across; window += WIDTH) {
            __global const STORAGE(DTYPE) *fours[2];
            __global STORAGE(DTYPE) *targets[2];
#pragma unroll
            for (uint i = 0; i < 2; i++) {
                fours[i] = from;
                targets[i] = to;
                column += HALF;
                ADVANCE(from, x_row)
                ADVANCE(to, 2 * across)
                if (column == across) column = 0;
            }
            LOAD_WINDOWS(fours[0], fours[1])
            const VEC(REAL) none = (VEC(REAL))(0);
            VEC(REAL) slope = LOADV(DTYPE, slopes + window);
            const VEC(MASK) m1 = OVERTAKES(w1, w0);
            VEC(REAL) best = SELECT(w0, w1, m1);
            const VEC(MASK) m2 = OVERTAKES(w2, best);
            best = SELECT(best, w2, m2);
            const VEC(MASK) m3 = OVERTAKES(w3, best);
            const VEC(REAL) d3 = SELECT(none, slope, m3);
            slope = SELECT(slope, none, m3);
            const VEC(REAL) d2 = SELECT(none, slope, m2);
            slope = SELECT(slope, none, m2);
            const VEC(REAL) d1 = SELECT(none, slope, m1), d0 = SELECT(slope, none, m1);
            VEC(REAL) row;
            row.even = d0.lo;
            row.odd = d1.lo;
            STOREV(DTYPE, row, targets[0]);
            row.even = d2.lo;
            row.odd = d3.lo;
            STOREV(DTYPE, row, targets[0] + 2 * across);
            row.even = d0.hi;
            row.odd = d1.hi;
            STOREV(DTYPE, row, targets[1]);
            row.even = d2.hi;
            row.odd = d3.hi;
            STOREV(DTYPE, row, targets[1] + 2 * across);
        }
    }
}
