// Dot products of pairs of float16, v_dot2_f32_f16 of GCN 5.1, RDNA and CDNA: each work-item multiplies its own rows with its own
// column, 16 x 16 results in a wave. Without UNIT_DOT2 in plain C, for every device.

#ifndef POLYHAL_UNIT_DOT2
#define POLYHAL_UNIT_DOT2

#define UNIT_ROWS 16
#define UNIT_COLUMNS 16
#define UNIT_TERMS 4
#define SUMS (256 / LANES)
#define SUM_ROW(i) (UNIT_LANE / 16 * SUMS + (i))
#define SUM_COLUMN (UNIT_LANE % 16)

typedef struct {
    uint2 line[SUMS];
} Rows;
typedef uint2 Columns;
typedef struct {
    float s[SUMS];
} Sums;

static inline Rows load_rows(__local const ushort *tile, const uint pitch) {
    Rows rows;
#pragma unroll
    for (uint i = 0; i < SUMS; i++) rows.line[i] = *(__local const uint2 *)(tile + SUM_ROW(i) * pitch);
    return rows;
}

static inline Columns load_columns(__local const ushort *tile, const uint pitch) {
    return *(__local const uint2 *)(tile + SUM_COLUMN * pitch);
}

#if UNIT == UNIT_DOT2
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define DOT2(a, b, sum) __builtin_amdgcn_fdot2(as_half2(a), as_half2(b), sum, false)
#else
static inline float number_float16(const ushort bits) { return vload_half(0, (const half *)&bits); }
#define number_bfloat16 float_of_bfloat16
#define DOT2(a, b, sum)                                                                             \
    ((sum) + CONCAT(number_, DTYPE)((ushort)(a)) * CONCAT(number_, DTYPE)((ushort)(b)) +            \
     CONCAT(number_, DTYPE)((ushort)((a) >> 16)) * CONCAT(number_, DTYPE)((ushort)((b) >> 16)))
#endif

static inline Sums multiply(Sums sums, const Rows rows, const Columns columns) {
#pragma unroll
    for (uint i = 0; i < SUMS; i++)
        sums.s[i] = DOT2(rows.line[i].s1, columns.s1, DOT2(rows.line[i].s0, columns.s0, sums.s[i]));
    return sums;
}

#endif
