// In which order the groups of a matrix product take its tiles: in strips of a few rows, column after column, so that
// the groups that are at work together share operands in the cache.

#ifndef POLYHAL_TILE_ORDER
#define POLYHAL_TILE_ORDER

#ifndef STRIP
#define STRIP 8
#endif

// The row and the column, counted in tiles, of tile number `tile` of `down` x `across`.
inline uint2 place_of_tile(const uint tile, const uint down, const uint across) {
    const uint strip = tile / (STRIP * across);
    const uint height = min((uint)STRIP, down - strip * STRIP);
    const uint within = tile - strip * STRIP * across;
    return (uint2)(strip * STRIP + within % height, within / height);
}

#endif
