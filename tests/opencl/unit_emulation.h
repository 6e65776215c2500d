// The built-in functions of matrix units, in OpenCL C with sub-groups: test-only. They exchange values between lanes as the vendors'
// documents specify, so that kernels and their layouts run on a device without the unit.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
// WRONG emulates a unit with another layout: 1 swaps adjacent terms of a, 2 swaps adjacent rows of results.
#ifndef WRONG
#define WRONG 0
#endif
#define UNIT_ATTRIBUTE __attribute__((intel_reqd_sub_group_size(LANES)))

static inline float emulated_half(ushort bits) { return vload_half(0, (const half *)&bits); }
static inline float emulated_bfloat(ushort bits) { return as_float((uint)bits << 16); }

// A lane has `count` results, number i at ROW and COLUMN. Term t of that row is number A_AT of lane A_LANE, and term t of that
// column number B_AT of lane B_LANE.
#define EMULATED(name, A, B, SUMS, count, terms, ROW, COLUMN, A_LANE, A_AT, B_LANE, B_AT, number)      \
    SUMS __attribute__((overloadable)) name(A a, B b, SUMS sums) {                                               \
        const uint lane = get_sub_group_local_id();                                                    \
        const ushort *x = (const ushort *)&a, *y = (const ushort *)&b;                                 \
        for (uint i = 0; i < count; i++) {                                                             \
            const uint row = ROW, column = COLUMN;                                                     \
            float sum = ((float *)&sums)[i ^ (WRONG == 2)];                                            \
            for (uint term = 0; term < terms; term++) {                                                \
                uint t = term ^ (WRONG == 1);                                                          \
                const float left = number(intel_sub_group_shuffle(x[A_AT], (uint)(A_LANE)));           \
                t = term;                                                                              \
                sum += left * number(intel_sub_group_shuffle(y[B_AT], (uint)(B_LANE)));                \
            }                                                                                          \
            ((float *)&sums)[i ^ (WRONG == 2)] = sum;                                                  \
        }                                                                                              \
        return sums;                                                                                   \
    }

#if defined(EMULATE_WMMA32)
EMULATED(wmma_half, half16, half16, float8, 8, 16, (2 * i + lane / 16), (lane % 16), row, t, column, t, emulated_half)
EMULATED(wmma_bfloat, short16, short16, float8, 8, 16, (2 * i + lane / 16), (lane % 16), row, t, column, t, emulated_bfloat)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32 wmma_half
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32 wmma_bfloat
#elif defined(EMULATE_WMMA_RDNA432)
EMULATED(wmma_half, half8, half8, float8, 8, 16, (lane / 16 * 8 + i), (lane % 16), row + t / 8 * 16, t % 8, column + t / 8 * 16,
         t % 8, emulated_half)
EMULATED(wmma_bfloat, short8, short8, float8, 8, 16, (lane / 16 * 8 + i), (lane % 16), row + t / 8 * 16, t % 8,
         column + t / 8 * 16, t % 8, emulated_bfloat)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12 wmma_half
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12 wmma_bfloat
#elif defined(EMULATE_MFMA64)
EMULATED(mfma_half, half4, half4, float4, 4, 16, (lane / 16 * 4 + i), (lane % 16), row + t / 4 * 16, t % 4, column + t / 4 * 16,
         t % 4, emulated_half)
EMULATED(mfma_bfloat, short4, short4, float4, 4, 16, (lane / 16 * 4 + i), (lane % 16), row + t / 4 * 16, t % 4,
         column + t / 4 * 16, t % 4, emulated_bfloat)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, sums, x, y, z) mfma_half(a, b, sums)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, sums, x, y, z) mfma_bfloat(a, b, sums)
#elif defined(EMULATE_XMX8)
EMULATED(xmx_half, int8, int8, float8, 8, 16, i, lane, t / 2, row * 2 + t % 2, column, t, emulated_half)
EMULATED(xmx_bfloat, int8, int8, float8, 8, 16, i, lane, t / 2, row * 2 + t % 2, column, t, emulated_bfloat)
#elif defined(EMULATE_XMX16)
EMULATED(xmx_half, short8, int8, float8, 8, 16, i, lane, t, row, column, t, emulated_half)
EMULATED(xmx_bfloat, short8, int8, float8, 8, 16, i, lane, t, row, column, t, emulated_bfloat)
#elif defined(EMULATE_DOT232) || defined(EMULATE_DOT264)
static inline float dot2_half(half2 a, half2 b, float sum, bool clamp) {
    return sum + (float)a.s0 * (float)(WRONG ? b.s1 : b.s0) + (float)a.s1 * (float)(WRONG ? b.s0 : b.s1);
}
#define __builtin_amdgcn_fdot2 dot2_half
#endif
#if defined(EMULATE_XMX8) || defined(EMULATE_XMX16)
#define intel_sub_group_f16_f16_matrix_mad_k16 xmx_half
#define intel_sub_group_bf16_bf16_matrix_mad_k16 xmx_bfloat
#endif
