// XMX of Xe graphics: 8 rows, 16 terms, and as many columns as a sub-group has lanes, 8 (Xe-HPG) or 16 (Xe-HPC, Xe2). Of each
// row of a, every work-item holds 16 / LANES neighbouring terms; of b, column UNIT_LANE, its terms in pairs.
// Source: the specification of cl_intel_subgroup_matrix_multiply_accumulate.

#ifndef POLYHAL_UNIT_XMX
#define POLYHAL_UNIT_XMX

#define UNIT_ROWS 8
#define UNIT_COLUMNS LANES
#define UNIT_TERMS 16
#define SUMS 8
#define SUM_ROW(i) (i)
#define SUM_COLUMN UNIT_LANE

#if LANES == 8
typedef int8 Rows;
#define TERMS_OF_LANE int
#else
typedef short8 Rows;
#define TERMS_OF_LANE short
#endif
typedef int8 Columns;
typedef float8 Sums;

static inline Rows load_rows(__local const ushort *tile, const uint pitch) {
    Rows rows;
    __local const TERMS_OF_LANE *at = (__local const TERMS_OF_LANE *)tile + UNIT_LANE;
    const uint step = pitch * sizeof(ushort) / sizeof(TERMS_OF_LANE);
    rows.s0 = at[0];
    rows.s1 = at[step];
    rows.s2 = at[2 * step];
    rows.s3 = at[3 * step];
    rows.s4 = at[4 * step];
    rows.s5 = at[5 * step];
    rows.s6 = at[6 * step];
    rows.s7 = at[7 * step];
    return rows;
}

static inline Columns load_columns(__local const ushort *tile, const uint pitch) {
    __local const int4 *line = (__local const int4 *)(tile + UNIT_LANE * pitch);
    return (int8)(line[0], line[1]);
}

// Compilers declare these only where the driver tells them that the device has the extension.
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(Rows a, Columns b, Sums sums);
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(Rows a, Columns b, Sums sums);
#define MULTIPLY_float16 intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_bfloat16 intel_sub_group_bf16_bf16_matrix_mad_k16
static inline Sums multiply(const Sums sums, const Rows rows, const Columns columns) {
    return CONCAT(MULTIPLY_, DTYPE)(rows, columns, sums);
}

#endif
