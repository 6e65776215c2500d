// Matrix units of GPUs behind one interface, selected by UNIT. NVIDIA's are in lib/mma.h and lib/wgmma.h.
//
// A wave of LANES neighbouring work-items multiplies UNIT_ROWS x UNIT_TERMS by UNIT_TERMS x UNIT_COLUMNS numbers and adds the
// product to float32 sums:
//   Rows, Columns            a work-item's part of the numbers of a, and of b
//   Sums                     its SUMS float32 sums
//   load_rows(tile, pitch)   loads from local memory: UNIT_ROWS lines of UNIT_TERMS terms, at distance `pitch` numbers
//   load_columns(tile, pitch)  loads UNIT_COLUMNS columns of b likewise, their terms contiguous
//   multiply(sums, rows, columns)  returns the new sums
//   SUM_ROW(i), SUM_COLUMN   where sum i is in the block
//   UNIT_ATTRIBUTE           attributes of kernels
// Numbers are the bits of DTYPE, float16 or bfloat16. Tiles are aligned to 16 bytes, and so are lines. All work-items of a wave
// must take part. The vendors' profiles (backends/opencl_c/profiles) list the unit of each device.

#ifndef POLYHAL_MATRIX_UNIT
#define POLYHAL_MATRIX_UNIT

#define UNIT_NONE 0
#define UNIT_DOT2 1
#define UNIT_WMMA 2
#define UNIT_MFMA 3
#define UNIT_XMX 4
#define UNIT_WMMA_RDNA4 5
#ifndef UNIT
#define UNIT UNIT_NONE
#endif
#ifndef LANES
#define LANES 32
#endif
#include "lib/dtypes.h"

#define UNIT_LANE (get_local_id(0) % LANES)
#ifndef UNIT_ATTRIBUTE
#if UNIT == UNIT_XMX
#define UNIT_ATTRIBUTE __attribute__((intel_reqd_sub_group_size(LANES)))
#else
#define UNIT_ATTRIBUTE
#endif
#endif

#if UNIT == UNIT_WMMA || UNIT == UNIT_WMMA_RDNA4
#include "lib/unit_wmma.h"
#elif UNIT == UNIT_MFMA
#include "lib/unit_mfma.h"
#elif UNIT == UNIT_XMX
#include "lib/unit_xmx.h"
#else
#include "lib/unit_dot2.h"
#endif

#endif
