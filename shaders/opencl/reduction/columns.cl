// Reduction across rows: a work-item reduces one split of STRIPS * WIDTH contiguous columns. Several strips suit CPUs, whose
// caches need more than one line of each row; several rows in flight suit GPUs. With SLICES, that many work-items of a group
// of GROUP share each split (sliced-K).
//
// Axes as in reduction/geometry.h, where the inner kept axis has stride 1; a split is one chunk. The result of (row, split)
// goes to out[row * splits + split].

#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef STRIPS
#define STRIPS 1
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"
#include "lib/combine.h"
#include "reduction/geometry.h"

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float
#define MAP(v) (v)
#define OPERATION sum
#define IDENTITY 0
#define DIVIDE 0
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

__kernel NO_AUTOVEC void reduction_columns(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                           __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                           const ACCUMULATOR divisor, const ReductionGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_AXES;
    const ulong column_blocks = (kept_inner + SPAN - 1) / SPAN;
#if SLICES > 1
    const ulong item = (ulong)get_group_id(0) * ACROSS + get_local_id(0) % ACROSS;
    const uint slice = get_local_id(0) / ACROSS;
#else
    const ulong item = get_global_id(0);
#endif
    const ulong slab = item / column_blocks;
    const ulong column = (item - slab * column_blocks) * SPAN;
    const ulong split = slab / kept_outer;
    const ulong outer_kept = slab - split * kept_outer;
#if SLICES == 1
    if (split >= splits) return;
#endif
    const uint left = min((ulong)SPAN, kept_inner - column);
    x += x_offset;
    out += out_offset;
    x += (long)outer_kept * kept_outer_stride + (long)column;
#if SLICES > 1
    ulong at = split * chunk + slice * (chunk / SLICES);
    const ulong end = split < splits ? min(at + chunk / SLICES, length) : 0;
#else
    ulong at = split * chunk;
    const ulong end = min(at + chunk, length);
#endif
    VEC(ACCUMULATOR) total[STRIPS];
    for (uint s = 0; s < STRIPS; s++) total[s] = (VEC(ACCUMULATOR))(IDENTITY);
    while (at < end) {
        const ulong outer = at / reduced_inner;
        const ulong inner = at - outer * reduced_inner;
        // A block ends with the run, so that its elements have a constant stride.
        const ulong count = min(min(end - at, reduced_inner - inner), (ulong)BLOCK);
        __global const STORAGE(DTYPE) *run =
            x + (long)outer * reduced_outer_stride + (long)inner * reduced_inner_stride;
        VEC(ACCUMULATOR) block[STRIPS];
        for (uint s = 0; s < STRIPS; s++) block[s] = (VEC(ACCUMULATOR))(IDENTITY);
        if (left == SPAN) {
            ulong i = 0;
            for (; i + UNROLL <= count; i += UNROLL) {
                VEC(COMPUTE(DTYPE)) loaded[UNROLL][STRIPS];
#pragma unroll
                for (uint u = 0; u < UNROLL; u++) {
#pragma unroll
                    for (uint s = 0; s < STRIPS; s++) {
                        loaded[u][s] = LOADV(DTYPE, run + (long)(i + u) * reduced_inner_stride + s * WIDTH);
                    }
                }
#pragma unroll
                for (uint u = 0; u < UNROLL; u++) {
#pragma unroll
                    for (uint s = 0; s < STRIPS; s++) {
                        const VEC(COMPUTE(DTYPE)) v = loaded[u][s];
                        const VEC(ACCUMULATOR) mapped = MAP(v);
                        block[s] = COMBINE_VECTORS(block[s], mapped);
                    }
                }
            }
            for (; i < count; i++) {
                for (uint s = 0; s < STRIPS; s++) {
                    const VEC(COMPUTE(DTYPE)) v = LOADV(DTYPE, run + (long)i * reduced_inner_stride + s * WIDTH);
                    const VEC(ACCUMULATOR) mapped = MAP(v);
                    block[s] = COMBINE_VECTORS(block[s], mapped);
                }
            }
        } else {
            for (ulong i = 0; i < count; i++) {
                for (uint s = 0; s * WIDTH < left; s++) {
                    VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(0);
                    const uint lanes = min(left - s * WIDTH, (uint)WIDTH);
                    for (uint j = 0; j < lanes; j++) {
                        LANE(COMPUTE(DTYPE), v, j) = LOAD(DTYPE, run, (long)i * reduced_inner_stride + s * WIDTH + j);
                    }
                    const VEC(ACCUMULATOR) mapped = MAP(v);
                    block[s] = COMBINE_VECTORS(block[s], mapped);
                }
            }
        }
        for (uint s = 0; s < STRIPS; s++) total[s] = COMBINE_VECTORS(total[s], block[s]);
        at += count;
    }
#if SLICES > 1
    __local VEC(ACCUMULATOR) partial[SLICES][ACROSS];
    partial[slice][get_local_id(0) % ACROSS] = total[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice > 0 || split >= splits) return;
    for (uint s = 1; s < SLICES; s++) total[0] = COMBINE_VECTORS(total[0], partial[s][get_local_id(0) % ACROSS]);
#endif
    // On GPUs, the loop is unrolled for constant lane indices: a register indexed by a variable is spilled to memory.
#if STRIPS == 1
#pragma unroll
#endif
    for (uint j = 0; j < SPAN; j++) {
        if (j >= left) break;
        const ulong row = outer_kept * kept_inner + column + j;
        ACCUMULATOR value = LANE(ACCUMULATOR, total[j / WIDTH], j % WIDTH);
#if DIVIDE
        value /= divisor;
#endif
        STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))value, out, row * splits + split);
    }
}
