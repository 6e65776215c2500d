// A fused group of pointwise ops over operands of any layout, and a reduction of its value over some axes.
//
// Terms are numbered by runs. With BY_ROWS, vectors run along a reduced axis of `inner` elements, `span` of them per run and
// `blocks` runs per row; a group of GROUP work-items reduces one split of one result. Without, a work-item reduces one split
// of STRIPS * WIDTH contiguous results on a kept axis of `inner` elements, and a run is one term of each. Split s takes
// runs s * runs_each to (s + 1) * runs_each of `runs`; its result i goes to out[s * results + i].
//
// The parts that depend on the ops are generated (lowering/reduction/fused.py): LOCATE_KEPT turns the index of a row of
// results into a pointer per operand, LOCATE_REDUCED does so for the index of a run, LOAD_FULL and LOAD_PART fill the
// input registers, COMPUTE_ALL computes `value`. The defaults sum the rows of one float array.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/operands.h"
#include "lib/dependent_launch.h"
#include "lib/combine.h"

#ifndef BY_ROWS
#define BY_ROWS 1
#endif
// 1: `inner` is a multiple of WIDTH.
#ifndef WHOLE
#define WHOLE 0
#endif
// GPUs gain from several loads in flight.
#if ALIGNED
#define UNROLLED _Pragma("unroll 4")
#else
#define UNROLLED
#endif
#ifndef STRIPS
#define STRIPS 1
#endif
#ifndef GROUP
#define GROUP 1
#endif
#include "lib/group_reduce.h"
#ifndef REAL
#define REAL float
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef OPERATION
#define OPERATION sum
#define IDENTITY 0
#endif

#ifndef PARAMETERS
#define PARAMETERS __global const float *p0, const ulong p0_offset
#define GEOMETRY uint inner, chunks, blocks, span, runs, runs_each, splits, items; int s0_0; float scale;
#define UNPACK_GEOMETRY                                                                                            \
    const uint inner = geometry.inner, chunks = geometry.chunks, blocks = geometry.blocks, span = geometry.span,   \
               runs = geometry.runs, runs_each = geometry.runs_each, splits = geometry.splits, items = geometry.items;       \
    const int s0_0 = geometry.s0_0;                                                                                \
    const float scale = geometry.scale;
#define LOCATE_KEPT __global const float *k0 = p0 + p0_offset + (OFFSET)row * s0_0;
#define LOCATE_REDUCED __global const float *q0 = k0;
#define REGISTERS VEC(float) r0;
#define LOAD_FULL LOAD_CONTIGUOUS(float32, r0, q0)
#define LOAD_PART LOAD_CONTIGUOUS_PART(float32, r0, q0)
#define COMPUTE_ALL const VEC(REAL) value = r0;
#endif

#if WIDTH == 1
#define VECTORS COMBINE_SCALARS
#else
#define VECTORS COMBINE_VECTORS
#endif

typedef struct {
    GEOMETRY
} FusedGeometry;

__kernel void reduction_fused(PARAMETERS, __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                              const FusedGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    UNPACK_GEOMETRY
    out += out_offset;
#if BY_ROWS
    GROUP_SCRATCH(REAL)
    const INDEX item = get_group_id(0);
#else
    const INDEX item = get_global_id(0);
#endif
    if (item >= items) return;
    const INDEX rows_and_chunks = items / splits;
    const INDEX split = item / rows_and_chunks;
    const INDEX place = item - split * rows_and_chunks;
    const INDEX first = split * runs_each, last = min(first + runs_each, runs);
#if BY_ROWS
    INDEX row = place;
    LOCATE_KEPT
    REAL total = IDENTITY;
    for (INDEX unit = first; unit < last; unit++) {
        INDEX run = unit / blocks;
        const INDEX begin = (unit - run * blocks) * span, end = min(begin + span, inner);
        LOCATE_REDUCED
        // Each run has sums of its own: short chains keep the rounding error low.
        VEC(REAL) sums = (VEC(REAL))(IDENTITY);
        REAL sum = IDENTITY;
        UNROLLED for (INDEX at = begin + LANE_ID * WIDTH; at < end; at += GROUP * WIDTH) {
            REGISTERS
            const uint left = WHOLE ? WIDTH : min((INDEX)WIDTH, end - at);
            if (left == WIDTH) {
                LOAD_FULL
                COMPUTE_ALL
                sums = VECTORS(sums, value);
            }
#if WIDTH > 1 && !WHOLE
            else {
                LOAD_PART
                COMPUTE_ALL
                VEC(REAL) lanes = value;
                EACH_LEFT sum = COMBINE_SCALARS(sum, LANE(REAL, lanes, j));
            }
#endif
        }
        EACH sum = COMBINE_SCALARS(sum, LANE(REAL, sums, j));
        total = COMBINE_SCALARS(total, sum);
    }
    GROUP_REDUCE(total, COMBINE_SCALARS)
    if (LANE_ID == 0) STORE(OUT_DTYPE, total * scale, out, item);
#else
    INDEX row = place / chunks;
    const INDEX begin = (place - row * chunks) * (STRIPS * WIDTH), results = rows_and_chunks / chunks * inner;
    out += split * results + row * inner;
    const INDEX wide = min((INDEX)(STRIPS * WIDTH), inner - begin);
    const uint strips = (wide + WIDTH - 1) / WIDTH;
    LOCATE_KEPT
    VEC(REAL) sums[STRIPS];
    for (uint strip = 0; strip < STRIPS; strip++) sums[strip] = (VEC(REAL))(IDENTITY);
    UNROLLED for (INDEX unit = first; unit < last; unit++) {
        INDEX run = unit;
        LOCATE_REDUCED
        for (uint strip = 0; strip < strips; strip++) {
            const INDEX at = begin + strip * WIDTH;
            REGISTERS
#if WIDTH == 1 || WHOLE
            LOAD_FULL
#else
            const uint left = min((INDEX)WIDTH, inner - at);
            if (left == WIDTH) {
                LOAD_FULL
            } else {
                LOAD_PART
            }
#endif
            COMPUTE_ALL
            sums[strip] = VECTORS(sums[strip], value);
        }
    }
    for (uint strip = 0; strip < strips; strip++) {
        VEC(REAL) lanes = sums[strip] * scale;
        const INDEX at = begin + strip * WIDTH;
        const uint left = min((INDEX)WIDTH, inner - at);
        EACH_LEFT STORE(OUT_DTYPE, LANE(REAL, lanes, j), out, at + j);
    }
#endif
}
