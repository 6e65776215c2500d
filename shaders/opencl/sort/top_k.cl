// The first few of long rows on GPUs, by pruning. A row is cut into pieces of PIECE elements, `pieces` to a row. Its first `keep`
// elements are among the `keep` pieces whose minima come first: piece_minima finds the minima, and copy_pieces collects those
// pieces, in the order of the row.
//
// Source as in sort/tile_rounds.h.

#ifndef PIECE
#define PIECE 32
#endif
#ifndef LANES
#define LANES 2
#endif
#ifndef MAX_KEEP
#define MAX_KEEP 1024
#endif
#include "sort/tile_rounds.h"

// For each piece the bits of its first element in order, and its position in the source. LANES work-items share a piece.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void piece_minima(SOURCE, TARGET_ARRAYS, const uint pieces, const SortGeometry geometry) {
    UNPACK_GEOMETRY
    __local ITEM first[GROUP];
    const ulong task = get_global_id(0) / LANES;
    const ulong row = task / pieces;
    const uint piece = task % pieces;
    ITEM least = LAST_ITEM;
    SOURCE_ROW(row)
    if (row < rows) {
        const uint begin = piece * PIECE + LANE_ID % LANES, end = min((piece + 1) * PIECE, length);
        _Pragma("unroll 8") for (uint k = 0; k < PIECE / LANES; k++) {
            const uint i = begin + k * LANES;
            const ITEM item = i < end ? item_of(BITS_AT(i), i) : LAST_ITEM;
            if (PRECEDES(item, least)) least = item;
        }
    }
    first[LANE_ID] = least;
    for (uint reach = LANES / 2; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (LANE_ID % LANES < reach && PRECEDES(first[LANE_ID + reach], first[LANE_ID])) first[LANE_ID] = first[LANE_ID + reach];
    }
    if (LANE_ID % LANES == 0 && row < rows) {
        const uint i = POSITION_OF(first[LANE_ID]);
        target_bits[task] = BITS_AT(i);
        target_positions[task] = i;
    }
}

// Copies the pieces that contain the positions `chosen` (rows, keep), keep <= MAX_KEEP, in the order of the row; `groups` share a
// row. The target is (rows, keep, PIECE); where a row ends within a piece, it is padded with elements that sort last.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void copy_pieces(SOURCE, TARGET_ARRAYS, __global const uint *chosen, const uint groups, const SortGeometry geometry) {
    UNPACK_GEOMETRY
    __local uint numbers[MAX_KEEP], ordered[MAX_KEEP];
    const ulong row = get_group_id(0) / groups;
    for (uint c = LANE_ID; c < keep; c += GROUP) numbers[c] = chosen[row * keep + c] / PIECE;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint c = LANE_ID; c < keep; c += GROUP) {
        uint before = 0;
        for (uint other = 0; other < keep; other++) before += numbers[other] < numbers[c];
        ordered[before] = numbers[c];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong target = row * keep * PIECE;
    SOURCE_ROW(row)
    for (uint k = get_group_id(0) % groups * GROUP + LANE_ID; k < keep * PIECE; k += groups * GROUP) {
        const ulong i = (ulong)ordered[k / PIECE] * PIECE + k % PIECE;
        target_bits[target + k] = i < length ? BITS_AT(i) : LAST_BITS;
        target_positions[target + k] = i < length ? POSITION_AT(i) : 0;
    }
}
