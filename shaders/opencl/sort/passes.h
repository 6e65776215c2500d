// Groups of GROUP work-items that sort elements by digits of eight bits: source and target of a pass, digits, and a scan.
//
// A work-item has EACH elements of a tile of a row.

#ifndef POLYHAL_SORT_PASSES
#define POLYHAL_SORT_PASSES

#ifndef GROUP
#define GROUP 64
#endif
#ifndef EACH
#define EACH 7
#endif
#ifndef FIRST
#define FIRST 1
#endif
#ifndef LAST
#define LAST 1
#endif
#include "sort/items.h"

#define TILE (GROUP * EACH)
#define DIGITS 256
#define DIGIT_BITS 8
#define LANE_ID ((uint)get_local_id(0))
#define FOR_EACH(j) _Pragma("unroll") for (uint j = 0; j < EACH; j++)

static inline uint digit_of(RAW bits, uint shift) { return (uint)(key_of(bits) >> shift) % DIGITS; }

// Exclusive scan over the work-items of the group; `all` becomes the total.
static inline uint exclusive_scan(uint mine, __local uint *sums, uint *all) {
    uint side = 0, sum = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[LANE_ID] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint reach = 1; reach < GROUP; reach *= 2) {
        if (LANE_ID >= reach) sum += sums[side + LANE_ID - reach];
        side = GROUP - side;
        sums[side + LANE_ID] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    *all = sums[side + GROUP - 1];
    return sum - mine;
}

// The source is x in the first pass, later arrays (rows, length) of bits and positions. The target of the last pass is
// the first `keep` elements of each row of the results, and of earlier passes arrays (rows, keep).
#if FIRST
#define SOURCE X_PARAMETER
#define SOURCE_ROW(row) const long x_begin = ROW_BEGIN(x, row);
#define BITS_AT(i) x[x_begin + (long)(i) * x_step]
#define POSITION_AT(i) ((uint)(i))
#else
#define SOURCE __global const RAW *source_bits, __global const uint *source_positions
#define SOURCE_ROW(row) const ulong source_begin = (row) * length;
#define BITS_AT(i) source_bits[source_begin + (i)]
#define POSITION_AT(i) source_positions[source_begin + (i)]
#endif
#if LAST
#define TARGET RESULT_PARAMETERS
#define TARGET_ROW(row) const long values_begin = ROW_BEGIN(values, row), indices_begin = ROW_BEGIN(indices, row);
#define WRITE_BITS(i, bits) (values[values_begin + (long)(i) * values_step] = (bits))
#define WRITE_POSITION(i, position) (indices[indices_begin + (long)(i) * indices_step] = (position))
#else
#define TARGET TARGET_ARRAYS
#define TARGET_ROW(row) const ulong target_begin = (row) * keep;
#define WRITE_BITS(i, bits) (target_bits[target_begin + (i)] = (bits))
#define WRITE_POSITION(i, position) (target_positions[target_begin + (i)] = (position))
#endif
#define TARGET_ARRAYS __global RAW *target_bits, __global uint *target_positions

#endif
