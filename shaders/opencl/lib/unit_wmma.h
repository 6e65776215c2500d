// WMMA of RDNA 3 and 4: 16 x 16 x 16 by a wave of 32. On RDNA 3 work-items l and l + 16 hold the same row of a, and column of b:
// all 16 terms of row or column l. Work-item l has the sums of column l % 16, in every other row. On RDNA 4 work-item l
// holds eight terms and the sums of the upper eight rows, l + 16 the other terms and sums. Sources: AMD, RDNA 3
// Instruction Set Architecture, wave matrix multiply accumulate; LLVM, tests of the built-in functions of gfx12; layout
// of sums on RDNA 4: github.com/warpfront/hipfire/pull/140.

#ifndef POLYHAL_UNIT_WMMA
#define POLYHAL_UNIT_WMMA

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define UNIT_ROWS 16
#define UNIT_COLUMNS 16
#define UNIT_TERMS 16
#define SUMS 8
#define SUM_COLUMN (UNIT_LANE % 16)

typedef float8 Sums;

#if UNIT == UNIT_WMMA_RDNA4
#define SUM_ROW(i) (UNIT_LANE / 16 * 8 + (i))

typedef short8 Rows;
typedef short8 Columns;

static inline short8 load_line(__local const ushort *tile, const uint pitch) {
    return *(__local const short8 *)(tile + UNIT_LANE % 16 * pitch + UNIT_LANE / 16 * 8);
}

#define MULTIPLY_float16(sums, a, b) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(a), as_half8(b), sums)
#define MULTIPLY_bfloat16(sums, a, b) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, sums)
#else
#define SUM_ROW(i) (2 * (i) + UNIT_LANE / 16)

typedef short16 Rows;
typedef short16 Columns;

static inline short16 load_line(__local const ushort *tile, const uint pitch) {
    __local const short8 *line = (__local const short8 *)(tile + UNIT_LANE % 16 * pitch);
    return (short16)(line[0], line[1]);
}

#define MULTIPLY_float16(sums, a, b) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), sums)
#define MULTIPLY_bfloat16(sums, a, b) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, sums)
#endif
#define load_rows load_line
#define load_columns load_line

static inline Sums multiply(const Sums sums, const Rows rows, const Columns columns) {
    return CONCAT(MULTIPLY_, DTYPE)(sums, rows, columns);
}

#endif
