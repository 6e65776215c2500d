// The transpose of gather/sum_bags.cl, for elements of 32 bits: out[index[i], :] += src[b, :] * scales[i] over the elements i of
// every bag b. A work-item has an element of src, or with QUAD_ATOMICS four, in a register, and adds it for all elements of the
// bag (gather/bags.h). Floats with equal indices are added in no fixed order. Indices out of range are skipped.

#ifndef DTYPE
#define DTYPE float32
#endif
#include "lib/dtypes.h"
#include "lib/atomic_add.h"
#include "gather/bags.h"

#if QUAD_ATOMICS
#define EACH 4
typedef float4 Unit;
#define ADD add_quad_atomically
#else
#define EACH 1
typedef STORAGE(DTYPE) Unit;
#define ADD add_atomically
#endif

__kernel void gather_scatter_bags(__global const STORAGE(DTYPE) *src, const ulong src_offset, BAG_PARAMETERS
                                  __global STORAGE(DTYPE) *out, const ulong out_offset, const BagGeometry geometry) {
    const uint units = geometry.width / EACH;
    const uint bag = get_global_id(0) / units, column = (get_global_id(0) - bag * units) * EACH;
    if (bag >= geometry.bags) return;
    index += index_offset;
    out += out_offset + column;
#if SCALES
    scales += scales_offset;
#endif
    const long last = END_OF(bag);
    const Unit value = *(__global const Unit *)(src + src_offset + (ulong)bag * geometry.width + column);
    for (long i = FIRST_OF(bag); i < last; i++) {
        const long row = (long)index[i * geometry.index_step];
        if (row < 0 || (ulong)row >= geometry.rows) continue;
#if SCALES
        ADD(out + (ulong)row * geometry.width, value * scales[i * geometry.scales_step]);
#else
        ADD(out + (ulong)row * geometry.width, value);
#endif
    }
}
