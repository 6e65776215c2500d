// Fields: scales and factors (16 bytes), codes of 2 bits (64), d (2), dmin (2).
#define BLOCK 256
#define BLOCK_BYTES 84
#define PART 16
#define ZERO 0
#define HAS_LEAST 1
#define QUADS(part, i) (WORDS(16, (part) / 8 * 8 + (part) % 2 * 4 + (i)) >> ((part) % 8 / 2 * 2) & 0x03030303u)
#define SCALES(part) (HALFS(80) * FLOATS(WORDS(0, (part) / 4) >> (8 * ((part) % 4)) & 15))
#define LEASTS(part) (-HALFS(82) * FLOATS(WORDS(0, (part) / 4) >> (8 * ((part) % 4) + 4) & 15))
