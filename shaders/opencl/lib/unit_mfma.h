// MFMA of CDNA: 16 x 16 x 16 by a wave of 64. Work-item l holds four terms, from 4 * (l / 16), of row or column l % 16, and the
// sums of column l % 16 in four rows, from 4 * (l / 16).
// Source: AMD, CDNA 2 Instruction Set Architecture; AMD's matrix instruction calculator.

#ifndef POLYHAL_UNIT_MFMA
#define POLYHAL_UNIT_MFMA

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define UNIT_ROWS 16
#define UNIT_COLUMNS 16
#define UNIT_TERMS 16
#define SUMS 4
#define SUM_ROW(i) (UNIT_LANE / 16 * 4 + (i))
#define SUM_COLUMN (UNIT_LANE % 16)

typedef short4 Rows;
typedef short4 Columns;
typedef float4 Sums;

static inline short4 load_line(__local const ushort *tile, const uint pitch) {
    return *(__local const short4 *)(tile + UNIT_LANE % 16 * pitch + UNIT_LANE / 16 * 4);
}
#define load_rows load_line
#define load_columns load_line

// The zeros repeat or exchange no blocks of operands.
#define MULTIPLY_float16(sums, a, b) __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(a), as_half4(b), sums, 0, 0, 0)
#define MULTIPLY_bfloat16(sums, a, b) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, sums, 0, 0, 0)
static inline Sums multiply(const Sums sums, const Rows rows, const Columns columns) {
    return CONCAT(MULTIPLY_, DTYPE)(sums, rows, columns);
}

#endif
