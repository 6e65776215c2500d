// K-tiles of TERMS terms in local memory. STAGERS work-items load one into registers and then store it; `me` is the number of a
// work-item among them.

#ifndef POLYHAL_GEMM_K_TILE
#define POLYHAL_GEMM_K_TILE

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

#endif
