// Tiles of elements that a group of GROUP work-items sorts in local memory, stably and by four bits at a time (Satish et al.,
// Designing Efficient Sorting Algorithms for Manycore GPUs, 2009). The elements stay in `bits`; only words that hold an
// 8-bit digit and the element's number in the tile are moved. Elements past the end of a row (numbers >= `count`) sort
// last.
//
// Work-item i holds words i * EACH and following. EACH is odd, so that neighbouring work-items access different banks of local
// memory, and at most 15, so that the sixteen counters of a work-item fit in a register of 64 bits.

#ifndef POLYHAL_SORT_ROUNDS
#define POLYHAL_SORT_ROUNDS

#include "sort/passes.h"

#define DIGIT_IN(word) ((word) % DIGITS)
#define NUMBER_IN(word) ((word) / DIGITS)

// Two counters of 16 bits share a word, with unused words between so that reading eight in a row meets no bank twice.
#define PAIRS 8
#define COUNTER(i) ((i) + (i) / PAIRS)
#define COUNTERS COUNTER(PAIRS * GROUP)
#define ROUND_MEMORY \
    __local RAW bits[TILE]; \
    __local uint slots[TILE], counters[COUNTERS], sums[2 * GROUP];

// Sorts all words stably by the four bits of their digits that begin at bit `shift`. They must have been read from
// `slots` before. Always inlined: a shared copy makes a compiler based on LLVM 15 crash with a segmentation fault in
// its inliner.
FORCE_INLINE void sort_round(const uint *words, uint shift, __local uint *slots, __local uint *counters,
                             __local uint *sums) {
    ulong seen = 0;
    uint ranks[EACH];
    FOR_EACH(j) {
        const uint at = 4 * (words[j] >> shift & 15);
        ranks[j] = (uint)(seen >> at) & 15;
        seen += 1UL << at;
    }
    for (uint k = 0; k < PAIRS; k++) {
        counters[COUNTER(k * GROUP + LANE_ID)] = ((uint)(seen >> 4 * k) & 15) | ((uint)(seen >> (4 * k + 32)) & 15) << 16;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint before[PAIRS], mine = 0, all;
    for (uint k = 0; k < PAIRS; k++) {
        before[k] = mine;
        mine += counters[COUNTER(LANE_ID * PAIRS + k)];
    }
    mine = exclusive_scan(mine, sums, &all);
    mine += all << 16;  // in the upper halves are the larger digits, which come after all of the smaller ones
    for (uint k = 0; k < PAIRS; k++) counters[COUNTER(LANE_ID * PAIRS + k)] = before[k] + mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_EACH(j) {
        const uint digit = words[j] >> shift & 15;
        const uint pair = counters[COUNTER(digit % PAIRS * GROUP + LANE_ID)];
        slots[ranks[j] + (digit < PAIRS ? pair & 0xffff : pair >> 16)] = words[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Reads the words of the work-item; a barrier must follow before they are written back.
#define READ_WORDS(words) FOR_EACH(j) words[j] = slots[LANE_ID * EACH + j];
// Sorts words by their digits, into `slots`.
#define SORT_WORDS(words) \
    { \
        sort_round(words, 0, slots, counters, sums); \
        READ_WORDS(words) \
        sort_round(words, 4, slots, counters, sums); \
    }

// Reads elements `begin` and following of a row, up to `end`.
#define READ_TILE(begin, end) \
    { \
        FOR_EACH(j) { \
            const uint i = j * GROUP + LANE_ID; \
            bits[i] = begin + i < end ? BITS_AT(begin + i) : (RAW)0; \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }
#define WORD(number, count, shift) \
    ((number) * DIGITS + ((number) < (count) ? digit_of(bits[number], shift) : DIGITS - 1))

#endif
