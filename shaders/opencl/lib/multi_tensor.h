// Several tensors in one launch. They are given in slots and cut into chunks of CHUNK elements; the chunks of all slots are
// numbered one after the other, and each group of GROUP work-items takes one chunk. What varies with the number of slots and
// tensors per slot is generated (see lowering/slots.py): SLOT_PARAMETERS declares them, FIND_SLOT picks those of `chunk`
// and sets `size`, the slot's number of elements, and `start`, its first chunk.

#ifndef POLYHAL_SLOTS
#define POLYHAL_SLOTS

#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef CHUNK
#define CHUNK 4096
#endif
#ifndef REAL
#define REAL float
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/group_reduce.h"

typedef VEC(REAL) V;

// Elements of the chunk, from `begin` on: whole vectors, then what is left.
#define CHUNK_BOUNDS \
    const uint begin = (chunk - start) * CHUNK, end = min(begin + CHUNK, size), whole = begin + (end - begin) / WIDTH * WIDTH;
#define CHUNK_VECTORS for (uint i = begin + LANE_ID * WIDTH; i < whole; i += GROUP * WIDTH)
#define CHUNK_TAIL for (uint i = whole + LANE_ID; i < end; i += GROUP)
#if WIDTH == 1
#define READ(D, p, i) LOAD(D, p, i)
#define WRITE(D, v, p, i) STORE(D, v, p, i)
#else
#define READ(D, p, i) LOADV(D, (p) + (i))
#define WRITE(D, v, p, i) STOREV(D, v, (p) + (i))
#endif

#endif
