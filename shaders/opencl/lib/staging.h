// Copies k-tiles of an operand to local memory: `extent` rows of a, or columns of b, (the MN axis) by DEPTH terms (the K
// axis), in chunks of `bytes` bytes. Elements outside the matrix are 0.
//
// The includer defines DTYPE, DEPTH, ITEMS, the work-items that share the copies, and WORD_OF(k_major, extent, line, at),
// the word of the k-tile for element `at` of a line. A line is a row of a or a column of b with its terms if `k_major`,
// else a term with its rows or columns. The number of chunks per line divides ITEMS or is a multiple of it, so that the
// distance between chunks of a work-item is a whole number of lines.

#ifndef POLYHAL_STAGING
#define POLYHAL_STAGING

#include "lib/async_copy.h"
#include "lib/dtypes.h"

// 1: a line may end within a chunk; the rest of the chunk is 0.
#ifndef RAGGED
#define RAGGED 0
#endif

// Unrolling makes addresses constant; for the fallback it would only lengthen compilation.
#if TENSOR_CORES
#define UNROLL_COPIES _Pragma("unroll")
#else
#define UNROLL_COPIES _Pragma("unroll 1")
#endif

// Returns the address of this work-item's first chunk of the k-tile at `x`. Kernels that copy one k-tile after another keep
// it and advance it, which takes fewer registers and instructions than recomputing it.
static inline __global const STORAGE(DTYPE) *first_chunk(__global const STORAGE(DTYPE) *x, const long mn_stride,
                                                             const long k_stride, const bool k_major,
                                                             const int extent, const int bytes) {
    const int size = sizeof(STORAGE(DTYPE));
    const int chunks = (k_major ? DEPTH : extent) * size / bytes;
    const int me = get_local_id(0);
    const int my_line = chunks < ITEMS ? me / chunks : 0;
    const int my_at = (chunks < ITEMS ? me % chunks : me) * (bytes / size);
    const long line_stride = k_major ? mn_stride : k_stride;
    const long at_stride = bytes > size ? 1 : k_major ? k_stride : mn_stride;
    return x + (my_line * line_stride + my_at * at_stride);
}

// Copies one of `parts` portions of the chunks of a k-tile. `source` is this work-item's first chunk; `mn` and `terms`
// are the remaining extents of the matrix, counted from the beginning of the k-tile. Chunks larger than an element
// require lines that are contiguous, aligned to them and, unless RAGGED, consist of whole chunks.
static inline void stage_chunks(__local uint *k_tile, __global const STORAGE(DTYPE) *source, const long mn_stride,
                                const long k_stride, const int mn, const int terms, const bool k_major, const int extent,
                                const int bytes, const int part, const int parts) {
    const int size = sizeof(STORAGE(DTYPE));
    const int lines = k_major ? extent : DEPTH;
    const int chunks = (k_major ? DEPTH : extent) * size / bytes;
    const int rounds = (lines * chunks + ITEMS - 1) / ITEMS;
    const int me = get_local_id(0);
    const int my_line = chunks < ITEMS ? me / chunks : 0;
    const int my_at = (chunks < ITEMS ? me % chunks : me) * (bytes / size);
    const long line_stride = k_major ? mn_stride : k_stride;
    const long at_stride = bytes > size ? 1 : k_major ? k_stride : mn_stride;
    const int lines_left = (k_major ? mn : terms) - my_line;
    const int left = (k_major ? terms : mn) - my_at;
    UNROLL_COPIES
    for (int i = part * rounds / parts; i < (part + 1) * rounds / parts; i++) {
        const int line = i * ITEMS / chunks, at = i * ITEMS % chunks * (bytes / size);
        if (lines * chunks % ITEMS != 0 && my_line + line >= lines) break;
        const bool inside = line < lines_left && at < left;
        const int count = inside ? min(left - at, bytes / size) * size : 0;
        __global const STORAGE(DTYPE) *from_chunk = source + (line * line_stride + at * at_stride);
        __local uint *to = k_tile + WORD_OF(k_major, extent, my_line + line, my_at + at);
        if (RAGGED && bytes == 16) {
            COPY16_OF(to, from_chunk, count);
        } else if (RAGGED && bytes == 8) {
            COPY8_OF(to, from_chunk, count);
        } else if (RAGGED && bytes == 4) {
            COPY4_OF(to, from_chunk, count);
        } else if (bytes == 16) {
            COPY16(to, from_chunk, inside);
        } else if (bytes == 8) {
            COPY8(to, from_chunk, inside);
        } else if (bytes == 4) {
            COPY4(to, from_chunk, inside);
        } else {
            ((__local ushort *)to)[my_at % 2] = inside ? *(__global const ushort *)from_chunk : (ushort)0;
        }
    }
}

// Copies the k-tile from row or column `first` and term `from` of a matrix of `mn` rows or columns and `end` terms.
static inline void stage(__local uint *k_tile, __global const STORAGE(DTYPE) *x, const long mn_stride,
                         const long k_stride, const uint first, const uint mn, const uint from, const uint end,
                         const bool k_major, const int extent, const int bytes, const int part, const int parts) {
    x += first * mn_stride + from * k_stride;
    stage_chunks(k_tile, first_chunk(x, mn_stride, k_stride, k_major, extent, bytes), mn_stride, k_stride,
                 (int)(mn - first), (int)(end - from), k_major, extent, bytes, part, parts);
}

#endif
