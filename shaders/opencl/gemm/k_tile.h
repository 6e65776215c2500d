// K-tiles of TERMS terms in local memory. STAGERS work-items load one into registers and then store it; `me` is the number of a
// work-item among them.

#ifndef POLYHAL_GEMM_K_TILE
#define POLYHAL_GEMM_K_TILE

// 1: four neighbouring elements of an operand are loaded at a time.
#ifndef A_QUADS
#define A_QUADS 0
#endif
#ifndef B_QUADS
#define B_QUADS 0
#endif
typedef CONCAT(REAL, 4) Quad;

#define PITCH(extent) ((extent) + 4)
#define LOADS(extent) ((extent) * TERMS / STAGERS)
// Line and term of element number e of a k-tile. Neighbours load 8 neighbouring terms of a line, or neighbouring lines;
// either way they store to different banks.
#define LINE(k_major, extent, e) ((k_major) ? (e) / 8 % (extent) : (e) % (extent))
#define TERM(k_major, extent, e) ((k_major) ? (e) / (8 * (extent)) * 8 + (e) % 8 : (e) / (extent))

#define FETCH(next, matrix, k_major, extent, line_step, term_step, lines, from)                                      \
    _Pragma("unroll") for (uint i = 0; i < LOADS(extent); i++) {                                                     \
        const uint e = me + i * STAGERS, line = LINE(k_major, extent, e), at = (from) + TERM(k_major, extent, e);    \
        next[i] = line < (lines) && at < k ? (REAL)LOAD(DTYPE, matrix, line * line_step + at * term_step) : (REAL)0; \
    }
#define STAGE(next, target, k_major, extent)                                                   \
    _Pragma("unroll") for (uint i = 0; i < LOADS(extent); i++) {                               \
        const uint e = me + i * STAGERS;                                                       \
        target[TERM(k_major, extent, e) * PITCH(extent) + LINE(k_major, extent, e)] = next[i]; \
    }
// Four neighbouring elements at a time, of contiguous lines whose length is a multiple of four. Neighbours load 8
// neighbouring terms of a line, or neighbouring lines.
#define QUAD_LINE(k_major, extent, e) ((k_major) ? (e) / 2 % (extent) : (e) % ((extent) / 4) * 4)
#define QUAD_TERM(k_major, extent, e) ((k_major) ? (e) / (2 * (extent)) * 8 + (e) % 2 * 4 : (e) / ((extent) / 4))
#define FETCH_QUADS(next, matrix, k_major, extent, line_step, term_step, lines, from)                                    \
    _Pragma("unroll") for (uint i = 0; i < LOADS(extent) / 4; i++) {                                                     \
        const uint e = me + i * STAGERS, line = QUAD_LINE(k_major, extent, e);                                           \
        const uint at = (from) + QUAD_TERM(k_major, extent, e);                                                          \
        next[i] = line < (lines) && at < k                                                                               \
                      ? *(__global const Quad *)&matrix[line * ((k_major) ? line_step : 1) + at * ((k_major) ? 1 : term_step)] \
                      : (Quad)(0);                                                                                       \
    }
#define STAGE_QUADS(next, target, k_major, extent)                                                           \
    _Pragma("unroll") for (uint i = 0; i < LOADS(extent) / 4; i++) {                                         \
        const uint e = me + i * STAGERS;                                                                     \
        __local REAL *const to =                                                                             \
            target + QUAD_TERM(k_major, extent, e) * PITCH(extent) + QUAD_LINE(k_major, extent, e);          \
        if (k_major) {                                                                                       \
            to[0] = next[i].s0, to[PITCH(extent)] = next[i].s1;                                              \
            to[2 * PITCH(extent)] = next[i].s2, to[3 * PITCH(extent)] = next[i].s3;                          \
        } else {                                                                                             \
            *(__local Quad *)to = next[i];                                                                   \
        }                                                                                                    \
    }

#if A_QUADS
#define A_NEXT Quad a_next[LOADS(ROWS) / 4]
#define FETCH_A FETCH_QUADS
#define STAGE_A STAGE_QUADS
#else
#define A_NEXT REAL a_next[LOADS(ROWS)]
#define FETCH_A FETCH
#define STAGE_A STAGE
#endif
#if B_QUADS
#define B_NEXT Quad b_next[LOADS(COLUMNS) / 4]
#define FETCH_B FETCH_QUADS
#define STAGE_B STAGE_QUADS
#else
#define B_NEXT REAL b_next[LOADS(COLUMNS)]
#define FETCH_B FETCH
#define STAGE_B STAGE
#endif

#endif
