// One elementwise op, or a fused group of them, over operands of any layout.
//
// The iteration space is `rows` x `inner` elements, cut into chunks of WIDTH neighbours of one row. Each work-item takes one
// chunk, or with SPANS a run of `each` chunks, which suits CPUs, where starting a work-item costs more than a chunk. The parts
// that depend on the ops are generated (lowering/pointwise/kernel_text.py): PARAMETERS declares operands and runtime scalars,
// GEOMETRY the numbers known when the launch is made, LOCATE computes each operand's pointer from the row, LOAD_FULL and LOAD_PART
// fill the input registers, COMPUTE_ALL evaluates, STORE_FULL and STORE_PART write. The defaults add two contiguous arrays.

#ifndef WIDTH
#define WIDTH 4
#endif
// 1: there is a single row, so the index of the row needs no division.
#ifndef FLAT
#define FLAT 0
#endif
#ifndef SPANS
#define SPANS 0
#endif
#include "lib/operands.h"
#include "lib/dependent_launch.h"

#ifndef PARAMETERS
#define PARAMETERS                                                                                        \
    __global const float *p0, const ulong p0_offset, __global const float *p1, const ulong p1_offset,       \
        __global float *p2, const ulong p2_offset
#define GEOMETRY uint inner, chunks, items, each;
#define UNPACK_GEOMETRY                                                                                    \
    const uint inner = geometry.inner, chunks = geometry.chunks, items = geometry.items, each = geometry.each;
#define LOCATE
#define REGISTERS VEC(float) r0, r1;
#define LOAD_FULL LOAD_CONTIGUOUS(float32, r0, p0 + p0_offset) LOAD_CONTIGUOUS(float32, r1, p1 + p1_offset)
#define LOAD_PART LOAD_CONTIGUOUS_PART(float32, r0, p0 + p0_offset) LOAD_CONTIGUOUS_PART(float32, r1, p1 + p1_offset)
#define COMPUTE_ALL VEC(float) r2 = r0 + r1;
#define STORE_FULL STORE_CONTIGUOUS(float32, r2, p2 + p2_offset)
#define STORE_PART STORE_CONTIGUOUS_PART(float32, r2, p2 + p2_offset)
#endif

#if FLAT
#define ROW_OF(item) 0
#else
#define ROW_OF(item) ((item) / chunks)
#endif

typedef struct {
    GEOMETRY
} ElementwiseGeometry;

__kernel void pointwise_elementwise(PARAMETERS, const ElementwiseGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    // Members are copied to variables, so that no compiler reloads the struct after each store.
    UNPACK_GEOMETRY
#if SPANS
    const INDEX last = min((INDEX)get_global_id(0) * each + each, items);
    for (INDEX item = get_global_id(0) * each; item < last;) {
        INDEX row = ROW_OF(item);
        const INDEX begin = item - row * chunks, end = min(begin + (last - item), chunks);
        item += end - begin;
        LOCATE
        for (INDEX at = begin * WIDTH; at < end * WIDTH; at += WIDTH)
#else
    const INDEX item = get_global_id(0);
    if (item < items) {
        INDEX row = ROW_OF(item);
        const INDEX at = (item - row * chunks) * WIDTH;
        LOCATE
#endif
        {
            REGISTERS
#if WIDTH == 1
            LOAD_FULL
            COMPUTE_ALL
            STORE_FULL
#else
            const INDEX left = inner - at;
            if (left >= WIDTH) {
                LOAD_FULL
            } else {
                LOAD_PART
            }
            COMPUTE_ALL
            if (left >= WIDTH) {
                STORE_FULL
            } else {
                STORE_PART
            }
#endif
        }
    }
}
