// Means of the columns of a tile of results, and their sums of squared deviations, per block of 64 rows: batch norm's statistics,
// computed while the results are in registers. Results are the accumulators of lib/wgmma.h, a block per warpgroup; all rows of a
// block exist. Include lib/fragment_store.h first.
//
// With MOMENTS 1, STORE_MOMENTS(block, first_column) stores the moments of `sums`, the results of block `block`, to `moments`:
// means (moment_blocks, n), then sums of squared deviations (moment_blocks, n). Blocks from moment_blocks on do not exist. All
// work-items that multiply must reach it (without tensor cores all of the group).
//
// Results are first rounded to OUT_DTYPE, as they are stored. So squares and sums of 64 elements of a similar size fit into
// float32: 16 + 6 bits for bfloat16. The difference of large ones is rounded once.

#ifndef POLYHAL_COLUMN_MOMENTS
#define POLYHAL_COLUMN_MOMENTS

#ifndef MOMENTS
#define MOMENTS 0
#endif

#if !MOMENTS
#define MOMENTS_PARAMETERS
#define DECLARE_MOMENTS
#define STORE_MOMENTS(block, first_column)
#else
#define MOMENTS_PARAMETERS __global float *moments, const uint moment_blocks,

static inline void store_moments(__global float *moments, float sum, float squares, uint block, uint blocks, uint column, uint n) {
    const float mean = sum / 64;
    moments[(ulong)block * n + column] = mean;
    moments[(ulong)(blocks + block) * n + column] = fmax(fma(-sum, mean, squares), 0.0f);
}

#if TENSOR_CORES

static inline float2 rounded(float first, float second) {
    return CONCAT(unpacked_, OUT_DTYPE)(CONCAT(packed_, OUT_DTYPE)(first, second));
}
static inline float from_distance(float value, uint distance) {
    return as_float(shuffle_word(as_uint(value), distance));
}

// Each lane has two rows of two columns per group of eight columns: their sums, and sums of squares.
static inline float4 lane_moments(float first, float second, float first_below, float second_below) {
    const float2 above = rounded(first, second), below = rounded(first_below, second_below);
    return (float4)(above + below, above * above + below * below);
}

// Eight lanes, at distances of four, halve the groups of a chunk of 64 columns three times, and add up: two columns per lane are
// left. A lane keeps one of two groups, adds its neighbour's part, and gives the other away.
static inline float4 halved(float4 low, float4 high, uint distance) {
    const bool upper = get_local_id(0) & distance;
    const float4 kept = upper ? high : low, other = upper ? low : high;
    return kept + (float4)(from_distance(other.s0, distance), from_distance(other.s1, distance),
                           from_distance(other.s2, distance), from_distance(other.s3, distance));
}
#define GROUP_MOMENTS(g)                                                                          \
    lane_moments(sums[chunk / 2 + 4 * (g)], sums[chunk / 2 + 4 * (g) + 1], sums[chunk / 2 + 4 * (g) + 2], \
                 sums[chunk / 2 + 4 * (g) + 3])
#define PAIR_OF_GROUPS(g) halved(GROUP_MOMENTS(g), GROUP_MOMENTS((g) + 1), 4)
#define FOUR_GROUPS(g) halved(PAIR_OF_GROUPS(g), PAIR_OF_GROUPS((g) + 2), 8)
#define WARPS_JOIN() asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory")
// Each warp's sums of a chunk's columns, and of their squares.
#define DECLARE_MOMENTS __local float2 moment_sums[WARPGROUPS * 256];
#define STORE_MOMENTS(block, first_column)                                                                 \
    {                                                                                                      \
        const uint own_block = (block), begin = (first_column), lane = get_local_id(0) % 32;               \
        __local float2 *const own = moment_sums + (warpgroup * 4 + WARPGROUP_LANE / 32) * 64 + lane;       \
        __local const float *const all = (__local const float *)(moment_sums + warpgroup * 256);           \
        if (own_block < moment_blocks) {                                                                   \
            _Pragma("unroll") for (uint chunk = 0; chunk < WIDE; chunk += 64) {                            \
                const float4 mine = halved(FOUR_GROUPS(0), FOUR_GROUPS(4), 16);                            \
                own[0] = mine.lo;                                                                          \
                own[32] = mine.hi;                                                                         \
                WARPS_JOIN();                                                                              \
                const uint at = WARPGROUP_LANE;                                                            \
                if (at < 64 && begin + chunk + at < n) {                                                   \
                    const float sum = all[at] + all[at + 128] + (all[at + 256] + all[at + 384]);           \
                    const float squares = all[at + 64] + all[at + 192] + (all[at + 320] + all[at + 448]);  \
                    store_moments(moments, sum, squares, own_block, moment_blocks, begin + chunk + at, n); \
                }                                                                                          \
                WARPS_JOIN();                                                                              \
            }                                                                                              \
        }                                                                                                  \
    }

#else

#define DECLARE_MOMENTS __local ushort moment_values[WARPGROUPS * 64 * WIDE];
#define MOMENT_VALUES ((__local STORAGE(OUT_DTYPE) *)moment_values)
#define STORE_MOMENTS(block, first_column)                                                                      \
    {                                                                                                           \
        const uint own_block = (block), begin = (first_column);                                                 \
        if (warpgroup < WARPGROUPS)                                                                             \
            for (uint i = 0; i < SUMS; i++)                                                                     \
                STORE(OUT_DTYPE, sums[i], MOMENT_VALUES, (warpgroup * 64 + SUM_ROW(i)) * WIDE + SUM_COLUMN(i)); \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                           \
        if (warpgroup < WARPGROUPS && own_block < moment_blocks)                                                \
            for (uint at = WARPGROUP_LANE; at < WIDE && begin + at < n; at += WARPGROUP) {                      \
                float sum = 0, squares = 0;                                                                     \
                for (uint line = warpgroup * 64; line < warpgroup * 64 + 64; line++) {                          \
                    const float value = LOAD(OUT_DTYPE, MOMENT_VALUES, line * WIDE + at);                       \
                    sum += value, squares += value * value;                                                     \
                }                                                                                               \
                store_moments(moments, sum, squares, own_block, moment_blocks, begin + at, n);                  \
            }                                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                           \
    }

#endif
#endif
#endif
