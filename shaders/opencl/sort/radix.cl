// Radix sort on GPUs of long rows (LSD): one pass for each eight bits of the keys, beginning with the lowest, stably
// sorts all elements by these bits. A row is cut into `parts` of `part_length`, a multiple of TILE, one for each group.
// In a pass radix_histogram counts digits, counts[row][digit][part]; a separate launch then computes an inclusive scan
// over the parts; then radix_scatter sorts each tile by the digit, so that elements with equal digits are neighbours,
// and writes these runs to their destinations.
//
// `shift` is the first of the eight bits. Source and target as in sort/tile_rounds.h; in all passes but the last, keep is length.

#include "sort/tile_rounds.h"

#define DIGITS_EACH ((DIGITS + GROUP - 1) / GROUP)
#define LOADS_IN_FLIGHT 8
#define UNPACK_PART \
    const ulong row = get_group_id(0) / parts; \
    const uint part = get_group_id(0) % parts; \
    const uint begin = part * part_length, end = min(begin + part_length, length);

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void radix_histogram(SOURCE, __global int *counts, const uint parts, const uint part_length, const uint shift,
                     const SortGeometry geometry) {
    UNPACK_GEOMETRY
    __local uint histogram[DIGITS];
    UNPACK_PART
    SOURCE_ROW(row)
    for (uint d = LANE_ID; d < DIGITS; d += GROUP) histogram[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    // Runs of equal digits are counted first: where all digits are equal, the atomics would serialize the work-items.
    uint digit = 0, run = 0;
    for (uint first = begin + LANE_ID; first < end; first += LOADS_IN_FLIGHT * GROUP) {
        RAW loaded[LOADS_IN_FLIGHT];
        _Pragma("unroll") for (uint k = 0; k < LOADS_IN_FLIGHT; k++) {
            const uint i = first + k * GROUP;
            loaded[k] = i < end ? BITS_AT(i) : (RAW)0;
        }
        _Pragma("unroll") for (uint k = 0; k < LOADS_IN_FLIGHT; k++) {
            if (first + k * GROUP >= end) break;
            const uint next = digit_of(loaded[k], shift);
            if (next != digit) {
                if (run) atomic_add(&histogram[digit], run);
                digit = next;
                run = 0;
            }
            run++;
        }
    }
    if (run) atomic_add(&histogram[digit], run);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = LANE_ID; d < DIGITS; d += GROUP) counts[(row * DIGITS + d) * parts + part] = (int)histogram[d];
}

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void radix_scatter(SOURCE, TARGET, __global const int *totals, const uint parts, const uint part_length, const uint shift,
                   const SortGeometry geometry) {
    UNPACK_GEOMETRY
    ROUND_MEMORY
    __local uint next[DIGITS];   // the place of the next element with this digit
    __local uint start[DIGITS];  // where the run of this digit begins in the tile
    UNPACK_PART
    SOURCE_ROW(row)
    TARGET_ROW(row)
    {
        // All parts of smaller digits come first, then the earlier parts of the same digit.
        uint before[DIGITS_EACH], mine = 0, all;
        for (uint k = 0; k < DIGITS_EACH; k++) {
            const uint d = LANE_ID * DIGITS_EACH + k;
            before[k] = mine;
            if (d < DIGITS) mine += (uint)totals[(row * DIGITS + d) * parts + parts - 1];
        }
        mine = exclusive_scan(mine, sums, &all);
        for (uint k = 0; k < DIGITS_EACH; k++) {
            const uint d = LANE_ID * DIGITS_EACH + k;
            if (d < DIGITS) next[d] = mine + before[k] + (part ? (uint)totals[(row * DIGITS + d) * parts + part - 1] : 0);
        }
    }
    uint words[EACH], targets[EACH];
    for (uint tile = begin; tile < end; tile += TILE) {
        const uint count = min((uint)TILE, end - tile);
        READ_TILE(tile, end)
        FOR_EACH(j) words[j] = WORD(LANE_ID * EACH + j, count, shift);
        SORT_WORDS(words)
        FOR_EACH(j) {
            const uint i = j * GROUP + LANE_ID;
            words[j] = slots[i];
            if (i < count && (i == 0 || DIGIT_IN(slots[i - 1]) != DIGIT_IN(words[j]))) start[DIGIT_IN(words[j])] = i;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FOR_EACH(j) {
            const uint i = j * GROUP + LANE_ID;
            targets[j] = i < count ? next[DIGIT_IN(words[j])] + i - start[DIGIT_IN(words[j])] : keep;
            if (targets[j] < keep) WRITE_BITS(targets[j], bits[NUMBER_IN(words[j])]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FOR_EACH(j) {
            const uint i = j * GROUP + LANE_ID;
            if (i < count && (i + 1 == count || DIGIT_IN(slots[i + 1]) != DIGIT_IN(words[j]))) {
                next[DIGIT_IN(words[j])] = targets[j] + 1;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#if !FIRST
        FOR_EACH(j) {
            const uint i = j * GROUP + LANE_ID;
            slots[i] = i < count ? POSITION_AT(tile + i) : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        FOR_EACH(j) {
            const uint number = NUMBER_IN(words[j]);
            if (targets[j] < keep) WRITE_POSITION(targets[j], FIRST ? tile + number : slots[number]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
