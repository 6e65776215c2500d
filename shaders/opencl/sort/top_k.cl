// The first few of long rows on GPUs. Cut into pieces of PIECE elements, the first `keep` of a row lie in the `keep` pieces
// whose first elements come first: best_of_pieces finds these elements, and take_pieces collects those pieces, in the order
// of the row.
//
// Source as in sort/tile_rounds.h; `pieces` to a row.

#ifndef PIECE
#define PIECE 32
#endif
#ifndef LANES
#define LANES 2
#endif
#ifndef MOST
#define MOST 1024
#endif
#include "sort/tile_rounds.h"

// For each piece the bits of its first element in order, and its number in the source. LANES work-items share a piece.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void best_of_pieces(SOURCE, __global RAW *best_bits, __global uint *best_places, ROW_PARAMETERS, SOURCE_STRIDES
                    const uint pieces) {
    __local ITEM first[GROUP];
    const ulong task = get_global_id(0) / LANES;
    const ulong row = task / pieces;
    const uint piece = task % pieces;
    ITEM best = LAST_ITEM;
    SOURCE_ROW(row)
    if (row < rows) {
        const uint begin = piece * PIECE + ME % LANES, end = min((piece + 1) * PIECE, length);
        _Pragma("unroll 8") for (uint k = 0; k < PIECE / LANES; k++) {
            const uint i = begin + k * LANES;
            const ITEM item = i < end ? item_of(BITS_AT(i), i) : LAST_ITEM;
            if (PRECEDES(item, best)) best = item;
        }
    }
    first[ME] = best;
    for (uint reach = LANES / 2; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (ME % LANES < reach && PRECEDES(first[ME + reach], first[ME])) first[ME] = first[ME + reach];
    }
    if (ME % LANES == 0 && row < rows) {
        const uint i = PLACE_OF(first[ME]);
        best_bits[task] = BITS_AT(i);
        best_places[task] = i;
    }
}

// Copies the pieces in which the elements of numbers `chosen` (rows, keep) lie, keep <= MOST, in order; `groups` share a row.
// The target is (rows, keep, PIECE); where a row ends within a piece, elements follow that come after all others.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void take_pieces(SOURCE, __global RAW *target_bits, __global uint *target_places, __global const uint *chosen,
                 ROW_PARAMETERS, SOURCE_STRIDES const uint keep, const uint groups) {
    __local uint found[MOST], ordered[MOST];
    const ulong row = get_group_id(0) / groups;
    for (uint c = ME; c < keep; c += GROUP) found[c] = chosen[row * keep + c] / PIECE;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint c = ME; c < keep; c += GROUP) {
        uint before = 0;
        for (uint other = 0; other < keep; other++) before += found[other] < found[c];
        ordered[before] = found[c];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong target = row * keep * PIECE;
    SOURCE_ROW(row)
    for (uint k = get_group_id(0) % groups * GROUP + ME; k < keep * PIECE; k += groups * GROUP) {
        const ulong i = (ulong)ordered[k / PIECE] * PIECE + k % PIECE;
        target_bits[target + k] = i < length ? BITS_AT(i) : LAST_BITS;
        target_places[target + k] = i < length ? PLACE_AT(i) : 0;
    }
}
