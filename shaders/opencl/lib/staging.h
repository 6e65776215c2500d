// Bringing a strip of an operand into local memory: `extent` places (rows of the left or columns of the right
// operand) by DEPTH terms, in pieces of `bytes` bytes. What lies outside the matrix is 0.
//
// Whoever includes this defines DTYPE, DEPTH, ITEMS, the work-items that share the work, and WORD_OF(along, extent,
// line, at): the word of the strip where element `at` of a line goes. A line is a place with its terms side by side,
// where `along`, or a term with its places. The pieces of a line divide ITEMS or are divided by it, so that a
// work-item's pieces differ by whole lines.

#ifndef POLYHAL_STAGING
#define POLYHAL_STAGING

#include "lib/async_copy.h"
#include "lib/dtypes.h"

// Whether a line may end within a piece. What is then left of the piece is 0.
#ifndef RAGGED
#define RAGGED 0
#endif

// Addresses become constants where the loop is unrolled; on other devices that only makes compilations long.
#if TENSOR_CORES
#define UNROLL_COPIES _Pragma("unroll")
#else
#define UNROLL_COPIES _Pragma("unroll 1")
#endif

// Where this work-item's first piece of the strip at `x` is. Whoever copies strip after strip keeps it and moves it on,
// which costs fewer registers and instructions than to find it anew.
inline __global const STORAGE(DTYPE) *first_chunk(__global const STORAGE(DTYPE) *x, const long place_stride,
                                               const long term_stride, const bool along, const int extent,
                                               const int bytes) {
    const int size = sizeof(STORAGE(DTYPE));
    const int pieces = (along ? DEPTH : extent) * size / bytes;
    const int me = get_local_id(0);
    const int my_line = pieces < ITEMS ? me / pieces : 0;
    const int my_at = (pieces < ITEMS ? me % pieces : me) * (bytes / size);
    const long line_stride = along ? place_stride : term_stride;
    const long at_stride = bytes > size ? 1 : along ? term_stride : place_stride;
    return x + (my_line * line_stride + my_at * at_stride);
}

// `source` is this work-item's first piece, `places` and `terms` say how many of the matrix there are from the strip's first
// on. Pieces larger than an element ask for lines of contiguous elements, all aligned to them, that end with a whole
// piece, unless RAGGED. Of `parts` shares of the work, number `part` is done.
inline void stage_chunks(__local uint *strip, __global const STORAGE(DTYPE) *source, const long place_stride,
                         const long term_stride, const int places, const int terms, const bool along, const int extent,
                         const int bytes, const int part, const int parts) {
    const int size = sizeof(STORAGE(DTYPE));
    const int lines = along ? extent : DEPTH;
    const int pieces = (along ? DEPTH : extent) * size / bytes;
    const int rounds = (lines * pieces + ITEMS - 1) / ITEMS;
    const int me = get_local_id(0);
    const int my_line = pieces < ITEMS ? me / pieces : 0;
    const int my_at = (pieces < ITEMS ? me % pieces : me) * (bytes / size);
    const long line_stride = along ? place_stride : term_stride;
    const long at_stride = bytes > size ? 1 : along ? term_stride : place_stride;
    const int lines_left = (along ? places : terms) - my_line;
    const int left = (along ? terms : places) - my_at;
    UNROLL_COPIES
    for (int i = part * rounds / parts; i < (part + 1) * rounds / parts; i++) {
        const int line = i * ITEMS / pieces, at = i * ITEMS % pieces * (bytes / size);
        if (lines * pieces % ITEMS != 0 && my_line + line >= lines) break;
        const bool wanted = line < lines_left && at < left;
        const int count = wanted ? min(left - at, bytes / size) * size : 0;
        __global const STORAGE(DTYPE) *from_here = source + (line * line_stride + at * at_stride);
        __local uint *to = strip + WORD_OF(along, extent, my_line + line, my_at + at);
        if (RAGGED && bytes == 16) {
            COPY16_OF(to, from_here, count);
        } else if (RAGGED && bytes == 8) {
            COPY8_OF(to, from_here, count);
        } else if (RAGGED && bytes == 4) {
            COPY4_OF(to, from_here, count);
        } else if (bytes == 16) {
            COPY16(to, from_here, wanted);
        } else if (bytes == 8) {
            COPY8(to, from_here, wanted);
        } else if (bytes == 4) {
            COPY4(to, from_here, wanted);
        } else {
            ((__local ushort *)to)[my_at % 2] = wanted ? *(__global const ushort *)from_here : (ushort)0;
        }
    }
}

// The same for the strip from place `first` and term `from` on, of a matrix of so many places and terms.
inline void stage(__local uint *strip, __global const STORAGE(DTYPE) *x, const long place_stride, const long term_stride,
                  const uint first, const uint places, const uint from, const uint end, const bool along,
                  const int extent, const int bytes, const int part, const int parts) {
    x += first * place_stride + from * term_stride;
    stage_chunks(strip, first_chunk(x, place_stride, term_stride, along, extent, bytes), place_stride, term_stride,
                 (int)(places - first), (int)(end - from), along, extent, bytes, part, parts);
}

#endif
