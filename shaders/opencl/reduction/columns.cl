// Reduction across rows: a work-item owns STRIPS * WIDTH neighbouring columns and walks down one part of their terms. Several
// strips suit CPUs, whose caches want more than one line from each row; several rows under way suit GPUs.
//
// With SLICES, so many work-items of a group of GROUP take each part together, one piece after the other.
//
// Arguments as in reduction/rows.cl, where the inner kept axis has stride 1; a part is one piece. Result (row, part) goes to
// out[row * parts + part].

#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef STRIPS
#define STRIPS 1
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/combine.h"

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float
#define MAP(v) (v)
#define OPERATION sum
#define IDENTITY 0
#define DIVIDE 0
#endif
#ifndef X_IS_WORKSPACE
#define X_IS_WORKSPACE 0
#define OUT_IS_WORKSPACE 0
#endif

#ifndef SLICES
#define SLICES 1
#define GROUP 1
#endif
#define ACROSS (GROUP / SLICES)

#define BLOCK 64
#if STRIPS == 1
#define UNROLL 8
#else
#define UNROLL 1
#endif
#define SPAN (STRIPS * WIDTH)
#define LANE(type, v, j) (((__private type *)&(v))[j])

__kernel NO_AUTOVEC void reduction_columns(__global const STORAGE(DTYPE) *x,
#if !X_IS_WORKSPACE
                             const ulong x_offset,
#endif
                             __global STORAGE(OUT_DTYPE) *out,
#if !OUT_IS_WORKSPACE
                             const ulong out_offset,
#endif
                             const ulong k0, const long k0s, const ulong k1, const long k1s, const long r0s, const ulong r1,
                             const long r1s, const ulong length, const ulong parts, const ulong piece,
                             const ACCUMULATOR divisor) {
    const ulong chunks = (k1 + SPAN - 1) / SPAN;
#if SLICES > 1
    const ulong item = (ulong)get_group_id(0) * ACROSS + get_local_id(0) % ACROSS;
    const uint slice = get_local_id(0) / ACROSS;
#else
    const ulong item = get_global_id(0);
#endif
    const ulong slab = item / chunks;
    const ulong column = (item - slab * chunks) * SPAN;
    const ulong part = slab / k0;
    const ulong outer_kept = slab - part * k0;
#if SLICES == 1
    if (part >= parts) return;
#endif
    const uint left = min((ulong)SPAN, k1 - column);
#if !X_IS_WORKSPACE
    x += x_offset;
#endif
#if !OUT_IS_WORKSPACE
    out += out_offset;
#endif
    x += (long)outer_kept * k0s + (long)column;
#if SLICES > 1
    ulong at = part * piece + slice * (piece / SLICES);
    const ulong end = part < parts ? min(at + piece / SLICES, length) : 0;
#else
    ulong at = part * piece;
    const ulong end = min(at + piece, length);
#endif
    VEC(ACCUMULATOR) total[STRIPS];
    for (uint s = 0; s < STRIPS; s++) total[s] = (VEC(ACCUMULATOR))(IDENTITY);
    while (at < end) {
        const ulong outer = at / r1;
        const ulong inner = at - outer * r1;
        // A block ends with the run, so that its elements are a fixed distance apart.
        const ulong count = min(min(end - at, r1 - inner), (ulong)BLOCK);
        __global const STORAGE(DTYPE) *run = x + (long)outer * r0s + (long)inner * r1s;
        VEC(ACCUMULATOR) block[STRIPS];
        for (uint s = 0; s < STRIPS; s++) block[s] = (VEC(ACCUMULATOR))(IDENTITY);
        if (left == SPAN) {
            ulong i = 0;
            for (; i + UNROLL <= count; i += UNROLL) {
                VEC(COMPUTE(DTYPE)) loaded[UNROLL][STRIPS];
                for (uint u = 0; u < UNROLL; u++) {
                    for (uint s = 0; s < STRIPS; s++) loaded[u][s] = LOADV(DTYPE, run + (long)(i + u) * r1s + s * WIDTH);
                }
                for (uint u = 0; u < UNROLL; u++) {
                    for (uint s = 0; s < STRIPS; s++) {
                        const VEC(COMPUTE(DTYPE)) v = loaded[u][s];
                        const VEC(ACCUMULATOR) mapped = MAP(v);
                        block[s] = COMBINE_VECTORS(block[s], mapped);
                    }
                }
            }
            for (; i < count; i++) {
                for (uint s = 0; s < STRIPS; s++) {
                    const VEC(COMPUTE(DTYPE)) v = LOADV(DTYPE, run + (long)i * r1s + s * WIDTH);
                    const VEC(ACCUMULATOR) mapped = MAP(v);
                    block[s] = COMBINE_VECTORS(block[s], mapped);
                }
            }
        } else {
            for (ulong i = 0; i < count; i++) {
                for (uint s = 0; s * WIDTH < left; s++) {
                    VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(0);
                    const uint lanes = min(left - s * WIDTH, (uint)WIDTH);
                    for (uint j = 0; j < lanes; j++) LANE(COMPUTE(DTYPE), v, j) = LOAD(DTYPE, run, (long)i * r1s + s * WIDTH + j);
                    const VEC(ACCUMULATOR) mapped = MAP(v);
                    block[s] = COMBINE_VECTORS(block[s], mapped);
                }
            }
        }
        for (uint s = 0; s < STRIPS; s++) total[s] = COMBINE_VECTORS(total[s], block[s]);
        at += count;
    }
#if SLICES > 1
    __local VEC(ACCUMULATOR) shares[SLICES][ACROSS];
    shares[slice][get_local_id(0) % ACROSS] = total[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice > 0 || part >= parts) return;
    for (uint s = 1; s < SLICES; s++) total[0] = COMBINE_VECTORS(total[0], shares[s][get_local_id(0) % ACROSS]);
#endif
    // On GPUs, lanes must be numbered by constants: a register that is indexed by a variable lies in memory.
#if STRIPS == 1
#pragma unroll
#endif
    for (uint j = 0; j < SPAN; j++) {
        if (j >= left) break;
        const ulong row = outer_kept * k1 + column + j;
        ACCUMULATOR value = LANE(ACCUMULATOR, total[j / WIDTH], j % WIDTH);
#if DIVIDE
        value /= divisor;
#endif
        STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))value, out, row * parts + part);
    }
}
