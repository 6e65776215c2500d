// Radix sort on GPUs of long rows (LSD) whose passes read each element once (Adinets and Merrill, 2022, "Onesweep"): one pass for
// each eight bits of the keys, beginning with the lowest, stably sorts all elements by these bits. The groups of a pass wait for
// each other: every group that was started must make progress. A group takes the number of its tile from a counter, and waits for
// tiles with smaller numbers only, which were started before.
//
// digit_counts counts the digits of all PASSES at once. one_sweep sorts a tile by the digit in local memory and publishes the counts
// of its digits. It adds up the counts of earlier tiles: back to the last tile whose running counts are known. Then it writes the
// runs of equal digits to their destinations.
//
// `state` consists of words that are initially zeros: totals[row][pass][digit], and for each pass the counter, then
// words[row][tile][digit]: a count, and in the highest bits COUNT_STATE, or PREFIX_STATE if it is the end of the digit's elements
// up to this tile. Rows have fewer than 2^30 elements.
//
// Within a tile a warp holds consecutive elements, work-item i of the warp every WARP-th. Ranks among equal digits of a warp
// come from lanes_with_equal (lib/warp.h), or from comparisons of digits in local memory.
//
// Source and target as in sort/passes.h; in all passes but the last, keep is length.

#ifndef PASSES
#define PASSES 4
#endif
#include "sort/passes.h"
#include "lib/warp.h"

#define WARPS (GROUP / WARP)
#define COUNT_STATE 0x40000000u
#define PREFIX_STATE 0x80000000u
#define COUNT_IN(word) ((word) & 0x3fffffffu)
#define DIGITS_EACH ((DIGITS + GROUP - 1) / GROUP)
#define LOADS_IN_FLIGHT 8
// Words of earlier tiles that are read at once.
#define BACK_AT_ONCE 4
#if RAW_BITS == 64
#define WIDER RAW
#else
#define WIDER uint
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void digit_counts(SOURCE, __global uint *state, const uint parts, const uint part_length, const SortGeometry geometry) {
    UNPACK_GEOMETRY
    __local uint histogram[PASSES * DIGITS];
    const ulong row = get_group_id(0) / parts;
    const uint begin = get_group_id(0) % parts * part_length, end = min(begin + part_length, length);
    SOURCE_ROW(row)
    for (uint d = LANE_ID; d < PASSES * DIGITS; d += GROUP) histogram[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    // Runs of equal keys are counted first: where all keys are equal, the atomics would serialize the work-items.
    RAW key = 0;
    uint run = 0;
    for (uint first = begin + LANE_ID; first < end; first += LOADS_IN_FLIGHT * GROUP) {
        RAW loaded[LOADS_IN_FLIGHT];
        _Pragma("unroll") for (uint k = 0; k < LOADS_IN_FLIGHT; k++) {
            const uint i = first + k * GROUP;
            loaded[k] = i < end ? BITS_AT(i) : (RAW)0;
        }
        _Pragma("unroll") for (uint k = 0; k < LOADS_IN_FLIGHT; k++) {
            if (first + k * GROUP >= end) break;
            const RAW next = key_of(loaded[k]);
            if (next != key) {
                if (run) {
                    _Pragma("unroll") for (uint p = 0; p < PASSES; p++) {
                        atomic_add(&histogram[p * DIGITS + (uint)(key >> p * DIGIT_BITS) % DIGITS], run);
                    }
                }
                key = next;
                run = 0;
            }
            run++;
        }
    }
    if (run) {
        for (uint p = 0; p < PASSES; p++) atomic_add(&histogram[p * DIGITS + (uint)(key >> p * DIGIT_BITS) % DIGITS], run);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = LANE_ID; d < PASSES * DIGITS; d += GROUP) {
        if (histogram[d]) atomic_add(&state[row * PASSES * DIGITS + d], histogram[d]);
    }
}

#if EXCHANGE == 2
#define DECLARE_DIGITS
#define EQUAL_LANES(lanes, digit) const uint lanes = lanes_with_equal(digit);
#define WARP_FENCE() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define DECLARE_DIGITS __local uint digits[GROUP];
#define EQUAL_LANES(lanes, digit)                                                                                \
    uint lanes = 0;                                                                                              \
    digits[LANE_ID] = digit;                                                                                     \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                \
    for (uint l = 0; l < WARP; l++) lanes |= (uint)(digits[LANE_ID / WARP * WARP + l] == digit) << l;
#define WARP_FENCE() barrier(CLK_LOCAL_MEM_FENCE)
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void one_sweep(SOURCE, TARGET, __global uint *state, const uint tiles, const uint pass, const SortGeometry geometry) {
    UNPACK_GEOMETRY
    __local WIDER memory[TILE];  // bits of elements, then their positions
    __local RAW *bits = (__local RAW *)memory;
    __local uint *positions = (__local uint *)memory;
    __local uint counts[WARPS * DIGITS];  // of each warp; then the place in the tile of its first element with the digit
    __local uint moves[DIGITS];           // from a place in the tile to the place in the target
    __local uint sums[2 * GROUP];
    __local uint ticket;
    DECLARE_DIGITS
    const uint shift = pass * DIGIT_BITS;
    __global const uint *totals = state + pass * DIGITS;
    state += rows * PASSES * DIGITS + pass * (1 + rows * tiles * DIGITS);
    if (LANE_ID == 0) ticket = atomic_inc((__global volatile uint *)state);
    for (uint d = LANE_ID; d < WARPS * DIGITS; d += GROUP) counts[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong row = ticket / tiles;
    const uint tile = ticket - (uint)row * tiles, begin = tile * TILE, count = min((uint)TILE, length - begin);
    const uint lane = LANE_ID % WARP, warp = LANE_ID / WARP, first = warp * WARP * EACH + lane;
    SOURCE_ROW(row)
    TARGET_ROW(row)
    totals += row * PASSES * DIGITS;
    __global volatile uint *words = state + 1 + (row * tiles + tile) * DIGITS;

    // Elements past the end have the largest digit and come last.
    RAW elements[EACH];
    uint ranks[EACH];
    const ulong from = (ulong)begin + first;
    FOR_EACH(j) elements[j] = first + j * WARP < count ? BITS_AT(from + j * WARP) : (RAW)0;
    FOR_EACH(j) {
        const uint digit = first + j * WARP < count ? digit_of(elements[j], shift) : DIGITS - 1;
        EQUAL_LANES(lanes, digit)
        const uint before = counts[warp * DIGITS + digit];
        const uint earlier = lanes & ((1u << lane) - 1);
        WARP_FENCE();
        if (earlier == 0) counts[warp * DIGITS + digit] = before + popcount(lanes);
        WARP_FENCE();
        ranks[j] = digit << 16 | (before + popcount(earlier));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint own[DIGITS_EACH], mine = 0, all, start, first_of_tile = 0;
    for (uint k = 0; k < DIGITS_EACH; k++) {
        const uint d = LANE_ID * DIGITS_EACH + k;
        own[k] = 0;
        if (d < DIGITS) {
            for (uint w = 0; w < WARPS; w++) {
                const uint number = counts[w * DIGITS + d];
                counts[w * DIGITS + d] = own[k];
                own[k] += number;
            }
            // Elements past the end are counted in the last digit of the last tile, which nobody reads.
            if (tile > 0) words[d] = COUNT_STATE | own[k];
        }
        mine += own[k];
    }
    start = exclusive_scan(mine, sums, &all);
    if (tile == 0) {
        uint total = 0;
        for (uint k = 0; k < DIGITS_EACH; k++) {
            const uint d = LANE_ID * DIGITS_EACH + k;
            if (d < DIGITS) total += totals[d];
        }
        first_of_tile = exclusive_scan(total, sums, &all);
    }
    for (uint k = 0; k < DIGITS_EACH; k++) {
        const uint d = LANE_ID * DIGITS_EACH + k;
        if (d < DIGITS) {
            uint place = 0;
            if (tile == 0) {
                place = first_of_tile;
                first_of_tile += totals[d];
            } else {
                uint back = 0, word = 0;
                while (word < PREFIX_STATE) {
                    uint read[BACK_AT_ONCE];
                    _Pragma("unroll") for (uint k = 0; k < BACK_AT_ONCE; k++) {
                        read[k] = back + k < tile ? *(words + d - (back + k + 1) * DIGITS) : 0;
                    }
                    bool more = true;
                    _Pragma("unroll") for (uint k = 0; k < BACK_AT_ONCE; k++) {
                        more = more && read[k] != 0 && word < PREFIX_STATE;
                        if (more) word = read[k];
                        if (more) place += COUNT_IN(word);
                        back += more;
                    }
                }
            }
            words[d] = PREFIX_STATE | (place + own[k]);
            moves[d] = place - start;
            for (uint w = 0; w < WARPS; w++) counts[w * DIGITS + d] += start;
            start += own[k];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_EACH(j) {
        ranks[j] = counts[warp * DIGITS + (ranks[j] >> 16)] + (ranks[j] & 0xffff);
        bits[ranks[j]] = elements[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint places[EACH];
    FOR_EACH(j) {
        const uint i = j * GROUP + LANE_ID;
        places[j] = keep;
        if (i < count) {
            const RAW element = bits[i];
            places[j] = i + moves[digit_of(element, shift)];
            if (places[j] < keep) WRITE_BITS(places[j], element);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_EACH(j) {
        const uint i = first + j * WARP;
        if (i < count) positions[ranks[j]] = POSITION_AT(from + j * WARP);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_EACH(j) {
        if (places[j] < keep) WRITE_POSITION(places[j], positions[j * GROUP + LANE_ID]);
    }
}
