// The quantile of the standard normal distribution that belongs to a 32-bit word, in integer arithmetic, so that every device
// computes the same bits. `table` has four coefficients per segment: COEFFICIENTS of polyhal.hal.ops.random.normal_table.
// See hal/ops/random/normal.py for the method and its source.

#ifndef POLYHAL_NORMAL
#define POLYHAL_NORMAL

static inline float normal_quantile(const uint word, __global const int4 *table) {
    const uint tail = word << 1 | 1;
    const uint octave = clz(tail);
    const uint position = tail << octave << 1;
    const uint4 c = as_uint4(table[octave << 3 | position >> 29]);
    const uint t = position << 3;
    uint value = c.z - (c.w * (t >> 16) >> 15);
    value = c.y - mul_hi(value, t);
    value = c.x - mul_hi(value, t);
    // At most 24 bits, so that the conversion is exact.
    value = value < (1u << 24) ? value : (value + 64) & 0xffffff80u;
    const float magnitude = (float)value * 0x1p-28f;
    return word >> 31 ? -magnitude : magnitude;
}

#endif
