// The format of quantised blocks that FORMAT names.

#ifndef POLYHAL_QUANTIZED_FORMAT
#define POLYHAL_QUANTIZED_FORMAT

#ifndef FORMAT
#define FORMAT q4_0
#endif
#include "lib/dtypes.h"
#include "quantized/fields.h"

#define FORMAT_q4_0 0
#define FORMAT_q4_1 1
#define FORMAT_q5_0 2
#define FORMAT_q5_1 3
#define FORMAT_q8_0 4
#define FORMAT_q2_k 5
#define FORMAT_q3_k 6
#define FORMAT_q4_k 7
#define FORMAT_q5_k 8
#define FORMAT_q6_k 9
#define FORMAT_iq4_nl 10
#define FORMAT_mxfp4 11
#define FORMAT_NUMBER CONCAT(FORMAT_, FORMAT)
#if FORMAT_NUMBER == 0
#include "quantized/q4_0.h"
#elif FORMAT_NUMBER == 1
#include "quantized/q4_1.h"
#elif FORMAT_NUMBER == 2
#include "quantized/q5_0.h"
#elif FORMAT_NUMBER == 3
#include "quantized/q5_1.h"
#elif FORMAT_NUMBER == 4
#include "quantized/q8_0.h"
#elif FORMAT_NUMBER == 5
#include "quantized/q2_k.h"
#elif FORMAT_NUMBER == 6
#include "quantized/q3_k.h"
#elif FORMAT_NUMBER == 7
#include "quantized/q4_k.h"
#elif FORMAT_NUMBER == 8
#include "quantized/q5_k.h"
#elif FORMAT_NUMBER == 9
#include "quantized/q6_k.h"
#elif FORMAT_NUMBER == 10
#include "quantized/iq4_nl.h"
#elif FORMAT_NUMBER == 11
#include "quantized/mxfp4.h"
#endif

#endif
