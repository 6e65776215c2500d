// Max pooling of 2 x 2 windows with stride 2 that cover the image, and its gradient, on CPUs. A work-item takes `planes_each`
// planes, and WIDTH contiguous elements of two rows at a time, which are HALF windows. If the number of windows per row
// is a multiple of four and per plane a multiple of eight, the `vector` kernels take WIDTH windows at a time, as two
// fours.

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

#define LENGTHS const uint planes, const uint planes_each, const uint channels, const uint down, const uint across
#define STRIDES(name) const long name##_image, const long name##_channel, const long name##_row
#define PLANE_OF(name, plane) \
    (name + name##_offset + (long)((plane) / channels) * name##_image + (long)((plane) % channels) * name##_channel)
#define FIRST_PLANE ((uint)get_global_id(0) * planes_each)
#define END_PLANE min(FIRST_PLANE + planes_each, planes)
// WIDTH elements of a row; the last windows may have fewer, `left`.
#define LOAD_ROW(r, p) \
    VEC(REAL) r;       \
    if (left == WIDTH) { LOAD_CONTIGUOUS(DTYPE, r, p) } else { LOAD_CONTIGUOUS_PART(DTYPE, r, p) }
#define STORE_ROW(r, p) \
    if (left == WIDTH) { STORE_CONTIGUOUS(DTYPE, r, p) } else { STORE_CONTIGUOUS_PART(DTYPE, r, p) }
// True if `later`, after `value` in a window, replaces it as the maximum: of NaN, the last is the maximum.
#define REPLACES(later, value) (((later) > (value)) | ((later) != (later)))

__kernel NO_AUTOVEC void max_pool_2x2(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                      __global STORAGE(DTYPE) *out, const ulong out_offset, LENGTHS, STRIDES(x)) {
    for (uint plane = FIRST_PLANE; plane < END_PLANE; plane++) {
        __global const STORAGE(DTYPE) *upper = PLANE_OF(x, plane), *lower = upper + x_row;
        __global STORAGE(DTYPE) *to = out + out_offset + (ulong)plane * down * across;
        for (uint row = 0; row < down; row++) {
            for (uint at = 0; at < 2 * across; at += WIDTH) {
                const uint left = min((uint)WIDTH, 2 * across - at);
                LOAD_ROW(above, upper)
                LOAD_ROW(below, lower)
                Windows best = above.even;
                best = SELECT(best, above.odd, REPLACES(above.odd, best));
                best = SELECT(best, below.even, REPLACES(below.even, best));
                best = SELECT(best, below.odd, REPLACES(below.odd, best));
                for (uint j = 0; j < left / 2; j++) STORE(DTYPE, LANE(REAL, best, j), to, at / 2 + j);
            }
            upper += 2 * x_row;
            lower += 2 * x_row;
            to += across;
        }
    }
}

// A window's gradient goes to its maximum: an element that no later one replaces and that replaces all before it.
__kernel NO_AUTOVEC void max_pool_2x2_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                           __global const STORAGE(DTYPE) *x, const ulong x_offset,
                                           __global STORAGE(DTYPE) *dx, const ulong dx_offset, LENGTHS, STRIDES(g),
                                           STRIDES(x)) {
    for (uint plane = FIRST_PLANE; plane < END_PLANE; plane++) {
        __global const STORAGE(DTYPE) *from = PLANE_OF(g, plane), *upper = PLANE_OF(x, plane), *lower = upper + x_row;
        __global STORAGE(DTYPE) *to = dx + dx_offset + (ulong)plane * 4 * down * across, *under = to + 2 * across;
        for (uint row = 0; row < down; row++) {
            for (uint at = 0; at < 2 * across; at += WIDTH) {
                const uint left = min((uint)WIDTH, 2 * across - at);
                LOAD_ROW(above, upper)
                LOAD_ROW(below, lower)
                Windows best = above.even, grad = (Windows)(0);
                for (uint j = 0; j < left / 2; j++) LANE(REAL, grad, j) = LOAD(DTYPE, from, at / 2 + j);
                const Choice m1 = REPLACES(above.odd, best);
                best = SELECT(best, above.odd, m1);
                const Choice m2 = REPLACES(below.even, best);
                best = SELECT(best, below.even, m2);
                const Choice m3 = REPLACES(below.odd, best);
                // The gradient goes to the last element that replaces the others.
                const Windows none = (Windows)(0);
                VEC(REAL) top, bottom;
                bottom.odd = SELECT(none, grad, m3);
                grad = SELECT(grad, none, m3);
                bottom.even = SELECT(none, grad, m2);
                grad = SELECT(grad, none, m2);
                top.odd = SELECT(none, grad, m1);
                top.even = SELECT(grad, none, m1);
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

// Elements of the four windows at `first` and at `second`: w0 upper left, w1 upper right, w2 lower left, w3 lower right.
#define LOAD_WINDOWS(first, second)                                                                       \
    const VEC(REAL) above0 = LOADV(DTYPE, first), above1 = LOADV(DTYPE, second);                          \
    const VEC(REAL) below0 = LOADV(DTYPE, (first) + x_row), below1 = LOADV(DTYPE, (second) + x_row);      \
    const VEC(REAL) w0 = (VEC(REAL))(above0.even, above1.even), w1 = (VEC(REAL))(above0.odd, above1.odd); \
    const VEC(REAL) w2 = (VEC(REAL))(below0.even, below1.even), w3 = (VEC(REAL))(below0.odd, below1.odd);
// Advance to the next four windows of an image with rows of this length.
#define ADVANCE(p, length) \
    p += WIDTH;            \
    if (column == across) p += 2 * (length) - 2 * across;

__kernel NO_AUTOVEC void max_pool_2x2_vector(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                             __global STORAGE(DTYPE) *out, const ulong out_offset, LENGTHS, STRIDES(x)) {
    for (uint plane = FIRST_PLANE; plane < END_PLANE; plane++) {
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
            VEC(REAL) best = SELECT(w0, w1, REPLACES(w1, w0));
            best = SELECT(best, w2, REPLACES(w2, best));
            best = SELECT(best, w3, REPLACES(w3, best));
            STOREV(DTYPE, best, to + window);
        }
    }
}

__kernel NO_AUTOVEC void max_pool_2x2_vector_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                                  __global const STORAGE(DTYPE) *x, const ulong x_offset,
                                                  __global STORAGE(DTYPE) *dx, const ulong dx_offset, LENGTHS, STRIDES(g),
                                                  STRIDES(x)) {
    for (uint plane = FIRST_PLANE; plane < END_PLANE; plane++) {
        __global const STORAGE(DTYPE) *grads = PLANE_OF(g, plane), *from = PLANE_OF(x, plane);
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
            VEC(REAL) grad = LOADV(DTYPE, grads + window);
            const VEC(MASK) m1 = REPLACES(w1, w0);
            VEC(REAL) best = SELECT(w0, w1, m1);
            const VEC(MASK) m2 = REPLACES(w2, best);
            best = SELECT(best, w2, m2);
            const VEC(MASK) m3 = REPLACES(w3, best);
            const VEC(REAL) d3 = SELECT(none, grad, m3);
            grad = SELECT(grad, none, m3);
            const VEC(REAL) d2 = SELECT(none, grad, m2);
            grad = SELECT(grad, none, m2);
            const VEC(REAL) d1 = SELECT(none, grad, m1), d0 = SELECT(grad, none, m1);
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
