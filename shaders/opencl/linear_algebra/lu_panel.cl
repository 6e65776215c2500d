// Steps of the right-looking LU factorization with partial pivoting of large matrices in place (LAPACK's getrf): a panel of up to
// SIZE columns, then linear_algebra/lu_exchange.cl and linear_algebra/rank_update.cl for the other columns.
//
// A group factors one panel. A work-item has BLOCK columns of ROWS rows in registers at a time; the other columns are in
// a workspace by columns. Rows do not move until the panel is factored: each has its `place`, which exchanges alter, so that a
// step takes one exchange of values among work-items, the row of the pivot. Columns to the right of a block are brought up
// to date when they are loaded.

#ifndef SIZE
#define SIZE 32
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef BLOCK
#define BLOCK 8
#endif
#ifndef GROUP
#define GROUP 64
#endif
#define IN_GLOBAL 1
#include "linear_algebra/matrices.h"
#include "linear_algebra/transposed_panel.h"
#include "lib/warp.h"

typedef struct {
    uint rows, columns, first, exchange, start;  // rows and columns of the matrix
} LuPanelGeometry;

typedef struct {
    REAL size;
    uint place;
} Candidate;

// The better pivot: the larger element, then the first place. A NaN counts as infinity.
FORCE_INLINE Candidate better(const Candidate a, const Candidate b) {
    return a.size > b.size || (a.size == b.size && a.place < b.place) ? a : b;
}

#if EXCHANGE == 2
#define BEST_OF_LANES(count)                                                                       \
    _Pragma("unroll") for (uint distance = (count) / 2; distance > 0; distance /= 2) {             \
        Candidate other;                                                                           \
        other.size = from_lane(mine.size, (ITEM % WARP) ^ distance);                               \
        other.place = from_lane(mine.place, (ITEM % WARP) ^ distance);                             \
        mine = better(mine, other);                                                                \
    }
#define CANDIDATES (GROUP / WARP)
#else
#define CANDIDATES GROUP
#endif

// The best candidate of all work-items.
FORCE_INLINE Candidate best_of_group(Candidate mine, __local Candidate *all) {
#if EXCHANGE == 2
    BEST_OF_LANES(WARP)
    if (ITEM % WARP == 0) all[ITEM / WARP] = mine;
    SYNC;
    mine = all[ITEM % CANDIDATES];
    BEST_OF_LANES(CANDIDATES)
#else
    all[ITEM] = mine;
    for (uint distance = GROUP / 2; distance > 0; distance /= 2) {
        SYNC;
        if (ITEM < distance) all[ITEM] = better(all[ITEM], all[ITEM + distance]);
    }
    SYNC;
    mine = all[0];
#endif
    return mine;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void linear_algebra_lu_panel(RESULT(DTYPE, out), RESULT(int32, pivots), RESULT(int32, info), __global uint *places,
                             __global REAL *workspace, const LuPanelGeometry geometry) {
    __local Candidate all[CANDIDATES];
    __local REAL top[SIZE][BLOCK], lower[SIZE][SIZE + 1], chunk[CHUNK * CHUNK_PITCH];
    __local uint sources[SIZE], targets[SIZE], place_of[GROUP];
    const ulong matrix = get_group_id(0);
    const uint first = geometry.first, pitch = geometry.columns, rows = geometry.rows - first;
    const uint columns = min(geometry.columns - first, (uint)SIZE), steps = min(rows, columns);
    __global REAL *corner = out + out_offset + matrix * geometry.rows * pitch + (ulong)first * pitch + first;
    __global REAL *panel = workspace + matrix * geometry.rows * SIZE;
    for (uint begin = 0; begin < rows; begin += CHUNK) {
        LOAD_CHUNK(corner, begin)
        SYNC;
        for (uint index = ITEM; index < CHUNK * SIZE; index += GROUP) {
            const uint i = index % CHUNK, c = index / CHUNK;
            if (begin + i < rows) PANEL_AT(begin + i, c) = chunk[i * CHUNK_PITCH + c];
        }
        SYNC;
    }
    uint place[ROWS], failed = 0;
    REAL values[ROWS][BLOCK];
    _Pragma("unroll") for (uint r = 0; r < ROWS; r++) place[r] = ITEM + r * GROUP;
    for (uint block = 0; block < columns; block += BLOCK) {
        const uint done = min(block, steps);
        _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
            const uint i = ITEM + r * GROUP;
            _Pragma("unroll") for (uint b = 0; b < BLOCK; b++) values[r][b] = i < rows ? PANEL_AT(i, block + b) : (REAL)0;
            if (i < rows && place[r] < done) {
                _Pragma("unroll") for (uint b = 0; b < BLOCK; b++) top[place[r]][b] = values[r][b];
                for (uint t = 0; t < place[r]; t++) lower[place[r]][t] = PANEL_AT(i, t);
            }
        }
        SYNC;
        for (uint t = 0; t + 1 < done; t++) {
            for (uint index = ITEM; index < done * BLOCK; index += GROUP)
                if (index / BLOCK > t)
                    top[index / BLOCK][index % BLOCK] -= lower[index / BLOCK][t] * top[t][index % BLOCK];
            SYNC;
        }
        if (block > 0) {
            _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
                const uint i = ITEM + r * GROUP;
                if (i < rows) {
                    if (place[r] < done)
                        _Pragma("unroll") for (uint b = 0; b < BLOCK; b++) values[r][b] = top[place[r]][b];
                    else
                        _Pragma("unroll 8") for (uint t = 0; t < done; t++) {
                            const REAL factor = PANEL_AT(i, t);
                            _Pragma("unroll") for (uint b = 0; b < BLOCK; b++) values[r][b] -= factor * top[t][b];
                        }
                }
            }
        }
        _Pragma("unroll") for (uint b = 0; b < BLOCK; b++) {
            const uint j = block + b;
            if (j < steps) {
                uint chosen = j;
                if (geometry.exchange) {
                    Candidate mine = {-1, rows};
                    _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
                        if (ITEM + r * GROUP < rows && place[r] >= j) {
                            const REAL value = values[r][b];
                            const Candidate next = {isnan(value) ? INFINITY : fabs(value), place[r]};
                            mine = better(mine, next);
                        }
                    }
                    chosen = best_of_group(mine, all).place;
                }
                _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
                    if (place[r] == chosen) {
                        _Pragma("unroll") for (uint c = 0; c < BLOCK; c++) top[j][c] = values[r][c];
                        place[r] = j;
                    } else if (place[r] == j) {
                        place[r] = chosen;
                    }
                }
                if (ITEM == 0)
                    pivots[pivots_offset + matrix * min(geometry.rows, geometry.columns) + first + j] =
                        geometry.start + first + chosen + 1;
                SYNC;
                const REAL pivot = top[j][b];
                if (pivot == 0 && !failed) failed = j + 1;
                _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
                    if (place[r] > j) {
                        const REAL factor = pivot == 0 ? values[r][b] : values[r][b] / pivot;
                        values[r][b] = factor;
                        _Pragma("unroll") for (uint c = b + 1; c < BLOCK; c++) values[r][c] -= factor * top[j][c];
                    }
                }
            }
        }
        _Pragma("unroll") for (uint r = 0; r < ROWS; r++)
            if (ITEM + r * GROUP < rows)
                _Pragma("unroll") for (uint b = 0; b < BLOCK; b++) PANEL_AT(ITEM + r * GROUP, block + b) = values[r][b];
        SYNC;
    }
    _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
        const uint i = ITEM + r * GROUP;
        if (i < rows) {
            if (place[r] < steps) sources[place[r]] = i;
            if (i < steps) targets[i] = place[r];
        }
        // Rows move to their places on their way back.
        place_of[ITEM] = place[r];
        for (uint begin = r * GROUP; begin < min(rows, (r + 1) * GROUP); begin += CHUNK) {
            for (uint index = ITEM; index < CHUNK * SIZE; index += GROUP) {
                const uint i = index % CHUNK, c = index / CHUNK;
                if (begin + i < rows) chunk[i * CHUNK_PITCH + c] = PANEL_AT(begin + i, c);
            }
            SYNC;
            for (uint index = ITEM; index < CHUNK * SIZE; index += GROUP) {
                const uint i = index / SIZE, c = index % SIZE;
                if (begin + i < rows && begin + i < (r + 1) * GROUP && c < columns)
                    corner[(ulong)place_of[begin - r * GROUP + i] * pitch + c] = chunk[i * CHUNK_PITCH + c];
            }
            SYNC;
        }
    }
    FOR_OWN(i, 0, steps) {
        places[(matrix * 2) * SIZE + i] = sources[i];
        places[(matrix * 2 + 1) * SIZE + i] = targets[i];
    }
    if (ITEM == 0 && failed && info[info_offset + matrix] == 0)
        info[info_offset + matrix] = geometry.start + first + failed;
}
