// Radix sort on GPUs of rows that fit in one tile: a group sorts a row. Source and target as in sort/tile_rounds.h.

#include "sort/tile_rounds.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void sort_tiles(SOURCE, TARGET, const SortGeometry geometry) {
    UNPACK_GEOMETRY
    ROUND_MEMORY
    const ulong row = get_group_id(0);
    SOURCE_ROW(row)
    TARGET_ROW(row)
    READ_TILE(0, length)
    uint words[EACH];
    FOR_EACH(j) words[j] = WORD(LANE_ID * EACH + j, length, 0);
    SORT_WORDS(words)
    for (uint shift = DIGIT_BITS; shift < RAW_BITS; shift += DIGIT_BITS) {
        FOR_EACH(j) {
            const uint number = NUMBER_IN(slots[LANE_ID * EACH + j]);
            words[j] = WORD(number, length, shift);
        }
        SORT_WORDS(words)
    }
    for (uint i = LANE_ID; i < keep; i += GROUP) {
        const uint number = NUMBER_IN(slots[i]);
        WRITE_BITS(i, bits[number]);
        WRITE_POSITION(i, POSITION_AT(number));
    }
}
