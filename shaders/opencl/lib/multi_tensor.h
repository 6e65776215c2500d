// Kernels over several tensors in one launch (multi-tensor apply). They come in SLOTS slots, one tensor per operand, and are
// cut into chunks of CHUNK elements. The chunks of all slots are numbered consecutively; each group of GROUP work-items
// processes one.
//
// Code that depends on the number of slots and operands is generated
// (backends/opencl_c/lowering/support/multi_tensor.py): SLOT_PARAMETERS declares the tensors, and FIND_SLOT selects the
// tensors of `chunk` and sets `size`, the slot's number of elements, and `start`, its first chunk; with MATRICES also
// `rows` and `columns`. Kernels take `SLOT_PARAMETERS, const SlotTable slots`.

#ifndef POLYHAL_MULTI_TENSOR
#define POLYHAL_MULTI_TENSOR

#ifndef SLOTS
#define SLOTS 1
#endif
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

typedef struct {
    uint size[SLOTS], start[SLOTS];
#ifdef MATRICES
    uint rows[SLOTS], columns[SLOTS];
#endif
} SlotTable;

// Elements of the chunk: whole vectors from `begin` to `whole`, then single elements.
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
