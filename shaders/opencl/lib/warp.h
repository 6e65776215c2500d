// Exchange of values among the 32 neighbouring work-items of a warp, for values of 4 and 8 bytes. EXCHANGE as in
// lib/group_reduce.h: with 2, NVIDIA's shuffles and votes, which all work-items of a warp must reach. Other devices have no
// such functions here; kernels exchange through local memory there.

#ifndef POLYHAL_WARP
#define POLYHAL_WARP

#ifndef EXCHANGE
#define EXCHANGE 0
#endif
#ifndef WARP
#define WARP 32
#endif

#if EXCHANGE == 2
#define SHUFFLE(name, instruction, clamp)                                                                              \
    static inline uint name##_word(uint bits, uint lane) {                                                             \
        uint other;                                                                                                    \
        asm volatile("shfl.sync." instruction ".b32 %0, %1, %2, " clamp ", -1;" : "=r"(other) : "r"(bits), "r"(lane)); \
        return other;                                                                                                  \
    }                                                                                                                  \
    static inline uint2 name##_words(uint2 bits, uint lane) {                                                          \
        return (uint2)(name##_word(bits.x, lane), name##_word(bits.y, lane));                                          \
    }
#define SHUFFLE_OF(name, type)                                                    \
    static inline type __attribute__((overloadable)) name(type value, uint lane) { \
        return as_##type(name##_word(as_uint(value), lane));                      \
    }
#define WIDE_SHUFFLE_OF(name, type)                                               \
    static inline type __attribute__((overloadable)) name(type value, uint lane) { \
        return as_##type(name##_words(as_uint2(value), lane));                    \
    }
#define SHUFFLES(name)        \
    SHUFFLE_OF(name, uint)    \
    SHUFFLE_OF(name, int)     \
    SHUFFLE_OF(name, float)   \
    WIDE_SHUFFLE_OF(name, ulong) \
    WIDE_SHUFFLE_OF(name, long)
// The value of the lane `lane` places before, or the own value if there is none.
SHUFFLE(from_before, "up", "0")
SHUFFLES(from_before)
// The value of lane number `lane`.
SHUFFLE(from_lane, "idx", "31")
SHUFFLES(from_lane)
#if HAVE_FP64
WIDE_SHUFFLE_OF(from_before, double)
WIDE_SHUFFLE_OF(from_lane, double)
#endif

// One bit per lane: whether its condition holds.
static inline uint lanes_with(bool condition) {
    uint lanes;
    asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %1, 0;\n vote.sync.ballot.b32 %0, p, -1;\n}"
                 : "=r"(lanes)
                 : "r"((uint)condition));
    return lanes;
}

// One bit per lane: whether its number, below 256, is equal to the own one. match.any takes longer where numbers differ.
static inline uint lanes_with_equal(uint number) {
    uint equal = ~0u;
    _Pragma("unroll") for (uint b = 0; b < 8; b++) {
        const bool set = number >> b & 1;
        const uint lanes = lanes_with(set);
        equal &= set ? lanes : ~lanes;
    }
    return equal;
}
#endif

#endif
