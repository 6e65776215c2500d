// Sorting on GPUs, long rows: in one pass for each eight bits of the keys, from the lowest on, all elements are moved to
// where they belong by those bits, in their order. A row is cut into `parts` of `part_length`, a multiple of TILE, one for
// each group. In a pass count_digits counts, by part and digit, counts[row][digit][part]; a running sum over the parts
// follows; then move_digits sorts each tile by the digit, so that elements with equal digits are neighbours, and writes these
// runs to where they go.
//
// Source and target as in sort/tile_rounds.h; in a pass that is not the last, keep is the length of a row.

#include "sort/tile_rounds.h"

#define DIGITS_EACH ((DIGITS + GROUP - 1) / GROUP)
#define TOGETHER 8
#define PART \
    const ulong row = get_group_id(0) / parts; \
    const uint part = get_group_id(0) % parts; \
    const uint begin = part * part_length, end = min(begin + part_length, length);

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void count_digits(SOURCE, __global int *counts, ROW_PARAMETERS, SOURCE_STRIDES const uint parts, const uint part_length,
                  const uint shift) {
    __local uint found[DIGITS];
    PART
    SOURCE_ROW(row)
    for (uint d = ME; d < DIGITS; d += GROUP) found[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    // Equal digits one after the other are added up first: where all are equal, work-items would wait for one another.
    uint digit = 0, run = 0;
    for (uint first = begin + ME; first < end; first += TOGETHER * GROUP) {
        RAW loaded[TOGETHER];
        _Pragma("unroll") for (uint k = 0; k < TOGETHER; k++) {
            const uint i = first + k * GROUP;
            loaded[k] = i < end ? BITS_AT(i) : (RAW)0;
        }
        _Pragma("unroll") for (uint k = 0; k < TOGETHER; k++) {
            if (first + k * GROUP >= end) break;
            const uint next = digit_of(loaded[k], shift);
            if (next != digit) {
                if (run) atomic_add(&found[digit], run);
                digit = next;
                run = 0;
            }
            run++;
        }
    }
    if (run) atomic_add(&found[digit], run);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = ME; d < DIGITS; d += GROUP) counts[(row * DIGITS + d) * parts + part] = (int)found[d];
}

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void move_digits(SOURCE, TARGET, __global const int *totals, ROW_PARAMETERS, SOURCE_STRIDES TARGET_STRIDES const uint keep,
                 const uint parts, const uint part_length, const uint shift) {
    ROUND_MEMORY
    __local uint next[DIGITS];   // where the next element with this digit goes
    __local uint start[DIGITS];  // where those of this digit begin in the tile
    PART
    SOURCE_ROW(row)
    TARGET_ROW(row)
    {
        // All parts of smaller digits come first, then the parts before of the same digit.
        uint before[DIGITS_EACH], mine = 0, all;
        for (uint k = 0; k < DIGITS_EACH; k++) {
            const uint d = ME * DIGITS_EACH + k;
            before[k] = mine;
            if (d < DIGITS) mine += (uint)totals[(row * DIGITS + d) * parts + parts - 1];
        }
        mine = sum_before(mine, sums, &all);
        for (uint k = 0; k < DIGITS_EACH; k++) {
            const uint d = ME * DIGITS_EACH + k;
            if (d < DIGITS) next[d] = mine + before[k] + (part ? (uint)totals[(row * DIGITS + d) * parts + part - 1] : 0);
        }
    }
    uint words[EACH], targets[EACH];
    for (uint tile = begin; tile < end; tile += TILE) {
        const uint count = min((uint)TILE, end - tile);
        READ_TILE(tile, end)
        FOR_EACH(j) words[j] = WORD(ME * EACH + j, count, shift);
        SORT_WORDS(words)
        FOR_EACH(j) {
            const uint i = j * GROUP + ME;
            words[j] = slots[i];
            if (i < count && (i == 0 || DIGIT_IN(slots[i - 1]) != DIGIT_IN(words[j]))) start[DIGIT_IN(words[j])] = i;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FOR_EACH(j) {
            const uint i = j * GROUP + ME;
            targets[j] = i < count ? next[DIGIT_IN(words[j])] + i - start[DIGIT_IN(words[j])] : keep;
            if (targets[j] < keep) WRITE_BITS(targets[j], bits[NUMBER_IN(words[j])]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FOR_EACH(j) {
            const uint i = j * GROUP + ME;
            if (i < count && (i + 1 == count || DIGIT_IN(slots[i + 1]) != DIGIT_IN(words[j]))) {
                next[DIGIT_IN(words[j])] = targets[j] + 1;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#if !FIRST
        FOR_EACH(j) {
            const uint i = j * GROUP + ME;
            slots[i] = i < count ? PLACE_AT(tile + i) : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        FOR_EACH(j) {
            const uint number = NUMBER_IN(words[j]);
            if (targets[j] < keep) WRITE_PLACE(targets[j], FIRST ? tile + number : slots[number]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
