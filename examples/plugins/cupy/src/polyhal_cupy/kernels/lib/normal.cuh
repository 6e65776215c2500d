// The quantile of the standard normal distribution that belongs to a 32-bit word, in integer arithmetic, so that every device
// computes the same bits. See hal/ops/random/normal.py of Polyhal for the method and its source.

#ifndef POLYHAL_NORMAL
#define POLYHAL_NORMAL

inline float normal_quantile(const uint32 word, const int32 *table) {
    const uint32 tail = word << 1 | 1;
    const uint32 octave = __clz(tail);
    const uint32 position = tail << octave << 1;
    const int4 c = ((const int4 *)table)[octave << 3 | position >> 29];
    const uint32 t = position << 3;
    uint32 value = (uint32)c.z - ((uint32)c.w * (t >> 16) >> 15);
    value = (uint32)c.y - __umulhi(value, t);
    value = (uint32)c.x - __umulhi(value, t);
    // At most 24 bits, so that the conversion is exact.
    value = value < (1u << 24) ? value : (value + 64) & 0xffffff80u;
    const float magnitude = (float)value * 0x1p-28f;
    return word >> 31 ? -magnitude : magnitude;
}

#endif
