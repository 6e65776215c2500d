// Tile swizzle: tiles are numbered in bands of SWIZZLE_ROWS rows, column after column, so that groups that run at the same
// time share operands in the cache.

#ifndef POLYHAL_TILE_SWIZZLE
#define POLYHAL_TILE_SWIZZLE

#ifndef SWIZZLE_ROWS
#define SWIZZLE_ROWS 8
#endif

// The row and the column, counted in tiles, of tile number `tile` of `down` x `across`.
static inline uint2 swizzled_tile(const uint tile, const uint down, const uint across) {
    const uint band = tile / (SWIZZLE_ROWS * across);
    const uint height = min((uint)SWIZZLE_ROWS, down - band * SWIZZLE_ROWS);
    const uint within = tile - band * SWIZZLE_ROWS * across;
    return (uint2)(band * SWIZZLE_ROWS + within % height, within / height);
}

#endif
