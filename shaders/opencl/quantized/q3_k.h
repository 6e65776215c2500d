// Fields: third bits (32 bytes), codes of 2 bits (64), scales of 6 bits (12), d (2).
#define BLOCK 256
#define BLOCK_BYTES 110
#define PART 16
#define ZERO 4
#define HAS_LEAST 0
#define QUADS(part, i)                                                                                           \
    ((WORDS(32, (part) / 8 * 8 + (part) % 2 * 4 + (i)) >> ((part) % 8 / 2 * 2) & 0x03030303u) |                  \
     (WORDS(0, (part) % 2 * 4 + (i)) >> ((part) / 8 * 4 + (part) % 8 / 2) & 0x01010101u) << 2)
#define LOW_SCALES(part) (WORDS(96, (part) % 8 / 4) >> (8 * ((part) % 4) + (part) / 8 * 4) & 15)
#define HIGH_SCALES(part) ((WORDS(96, 2) >> (8 * ((part) % 4) + (part) / 4 * 2) & 3) << 4)
#define SCALES(part) (HALFS(108) * (FLOATS(LOW_SCALES(part) | HIGH_SCALES(part)) - 32.0f))
