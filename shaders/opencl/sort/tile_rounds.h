// Tiles of elements that a group of GROUP work-items sorts in local memory, stably and by four bits at a time (Satish et al.,
// Designing Efficient Sorting Algorithms for Manycore GPUs, 2009). What is moved are words, of a digit of eight bits and the
// number of its element in the tile; the elements themselves stay in `bits`. Elements from `count` on, past the end of a row,
// stay behind all others.
//
// Work-item i holds words i * EACH and following. EACH is odd, so that work-items side by side are in different banks of
// local memory, and at most 15, so that the sixteen counters of a work-item fit in a register of 64 bits.

#ifndef POLYHAL_SORT_ROUNDS
#define POLYHAL_SORT_ROUNDS

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
#define ME ((uint)get_local_id(0))
#define FOR_EACH(j) _Pragma("unroll") for (uint j = 0; j < EACH; j++)
#define DIGIT_IN(word) ((word) % DIGITS)
#define NUMBER_IN(word) ((word) / DIGITS)

// Two counters of 16 bits share a word, with unused words between so that reading eight in a row meets no bank twice.
#define PAIRS 8
#define COUNTER(i) ((i) + (i) / PAIRS)
#define COUNTERS COUNTER(PAIRS * GROUP)
#define ROUND_MEMORY \
    __local RAW bits[TILE]; \
    __local uint slots[TILE], counters[COUNTERS], sums[2 * GROUP];

inline uint digit_of(RAW bits, uint shift) { return (uint)(key_of(bits) >> shift) % DIGITS; }

// The sum of the values of all work-items before this one; `all` becomes that of the whole group.
inline uint sum_before(uint mine, __local uint *sums, uint *all) {
    uint side = 0, sum = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[ME] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint reach = 1; reach < GROUP; reach *= 2) {
        if (ME >= reach) sum += sums[side + ME - reach];
        side = GROUP - side;
        sums[side + ME] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    *all = sums[side + GROUP - 1];
    return sum - mine;
}

// Moves all words to where they belong by four bits of their digits, from `shift` on. They must have been taken from `slots`
// before.
inline void sort_round(const uint *words, uint shift, __local uint *slots, __local uint *counters, __local uint *sums) {
    ulong seen = 0;
    uint ranks[EACH];
    FOR_EACH(j) {
        const uint at = 4 * (words[j] >> shift & 15);
        ranks[j] = (uint)(seen >> at) & 15;
        seen += 1UL << at;
    }
    for (uint k = 0; k < PAIRS; k++) {
        counters[COUNTER(k * GROUP + ME)] = ((uint)(seen >> 4 * k) & 15) | ((uint)(seen >> (4 * k + 32)) & 15) << 16;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint before[PAIRS], mine = 0, all;
    for (uint k = 0; k < PAIRS; k++) {
        before[k] = mine;
        mine += counters[COUNTER(ME * PAIRS + k)];
    }
    mine = sum_before(mine, sums, &all);
    mine += all << 16;  // in the upper halves are the larger digits, which come after all of the smaller ones
    for (uint k = 0; k < PAIRS; k++) counters[COUNTER(ME * PAIRS + k)] = before[k] + mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_EACH(j) {
        const uint digit = words[j] >> shift & 15;
        const uint pair = counters[COUNTER(digit % PAIRS * GROUP + ME)];
        slots[ranks[j] + (digit < PAIRS ? pair & 0xffff : pair >> 16)] = words[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Takes the words of the work-item; a barrier must come before they are put back.
#define TAKE(words) FOR_EACH(j) words[j] = slots[ME * EACH + j];
// Sorts words by their digits: afterwards they lie in `slots`.
#define SORT_WORDS(words) \
    { \
        sort_round(words, 0, slots, counters, sums); \
        TAKE(words) \
        sort_round(words, 4, slots, counters, sums); \
    }

// Source: x in the first pass, later arrays (rows, length) of bits and positions. Target: the results in the last pass, of
// which the first `keep` of each row are wanted, before that arrays (rows, keep).
#if FIRST
#define SOURCE OPERAND(x)
#define SOURCE_STRIDES STRIDES(x),
#define SOURCE_ROW(row) const long x_at = ROW_OF(x, row);
#define BITS_AT(i) RAW_AT(x, x_at + (long)(i) * x_step)
#define PLACE_AT(i) ((uint)(i))
#else
#define SOURCE __global const RAW *source_bits, __global const uint *source_places
#define SOURCE_STRIDES
#define SOURCE_ROW(row) const ulong source_at = (row) * length;
#define BITS_AT(i) source_bits[source_at + (i)]
#define PLACE_AT(i) source_places[source_at + (i)]
#endif
#if LAST
#define TARGET RESULT(values), __global long *indices, const ulong indices_offset
#define TARGET_STRIDES STRIDES(values), STRIDES(indices),
#define TARGET_ROW(row) const long values_at = ROW_OF(values, row), indices_at = ROW_OF(indices, row);
#define WRITE_BITS(i, bits) PUT_RAW(values, values_at + (long)(i) * values_step, bits)
#define WRITE_PLACE(i, place) (indices[indices_at + (long)(i) * indices_step] = (place))
#else
#define TARGET __global RAW *target_bits, __global uint *target_places
#define TARGET_STRIDES
#define TARGET_ROW(row) const ulong target_at = (row) * keep;
#define WRITE_BITS(i, bits) (target_bits[target_at + (i)] = (bits))
#define WRITE_PLACE(i, place) (target_places[target_at + (i)] = (place))
#endif

// Elements `begin` and following of a row, as many as there are before `end`.
#define READ_TILE(begin, end) \
    { \
        FOR_EACH(j) { \
            const uint i = j * GROUP + ME; \
            bits[i] = begin + i < end ? BITS_AT(begin + i) : (RAW)0; \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }
#define WORD(number, count, shift) \
    ((number) * DIGITS + ((number) < (count) ? digit_of(bits[number], shift) : DIGITS - 1))

#endif
