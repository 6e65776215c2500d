// Fields: low bits (128 bytes), high bits (64), signed scales (16), d (2).
#define BLOCK 256
#define BLOCK_BYTES 210
#define PART 16
#define ZERO 32
#define HAS_LEAST 0
// Part p covers half p / 8, group p % 8 / 2 of 32 weights, and half of that.
#define GROUP_OF(part) ((part) % 8 / 2)
#define QUADS(part, i)                                                                                        \
    (NIBBLES(WORDS(0, (part) / 8 * 16 + GROUP_OF(part) % 2 * 8 + (part) % 2 * 4 + (i)), GROUP_OF(part) / 2) | \
     (WORDS(128, (part) / 8 * 8 + (part) % 2 * 4 + (i)) >> (2 * GROUP_OF(part)) & 0x03030303u) << 4)
#define SCALES(part) (HALFS(208) * FLOATS(SIGNED(WORDS(192, (part) / 4) << (24 - 8 * ((part) % 4))) >> 24))
