// Fields of a tile of 16 rows (quantized/fields.h) as a work-item reads those of one row.

#ifndef POLYHAL_LANES
#define POLYHAL_LANES

#define ROW_LANES 1
#include "quantized/format.h"

FORCE_INLINE uint quads_of(__global const uchar *tile, const uint row, const uint part, const uint i) {
    return QUADS(part, i);
}
FORCE_INLINE float scale_of(__global const uchar *tile, const uint row, const uint part) { return SCALES(part); }
#if HAS_LEAST
FORCE_INLINE float least_of(__global const uchar *tile, const uint row, const uint part) { return LEASTS(part); }
#endif

#endif
