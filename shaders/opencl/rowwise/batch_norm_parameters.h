// Optional parameters and statistics of batch norm, as kernel arguments and per channel.

#ifndef POLYHAL_BATCH_NORM_PARAMETERS
#define POLYHAL_BATCH_NORM_PARAMETERS

#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef BIAS
#define BIAS 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#ifndef BIAS_DTYPE
#define BIAS_DTYPE DTYPE
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE WEIGHT_DTYPE
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef RELU
#define RELU 0
#endif
// A tensor is added before relu.
#ifndef ADDEND
#define ADDEND 0
#endif

#if WEIGHT
#define WEIGHTS __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#define WEIGHT_OF(channel) LOAD(WEIGHT_DTYPE, weight, weight_offset + (channel))
#else
#define WEIGHTS
#define WEIGHT_OF(channel) 1
#endif
#if BIAS
#define BIASES __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#define BIAS_OF(channel) LOAD(BIAS_DTYPE, bias, bias_offset + (channel))
#else
#define BIASES
#define BIAS_OF(channel) 0
#endif
#define STATISTICS \
    __global const REAL *means, const ulong means_offset, __global const REAL *variances, const ulong variances_offset,
#define DEVIATION(channel) (1 / sqrt(variances[variances_offset + (channel)] + eps))

#if SPLIT
// Means, then sums of squares around them, (splits, channels) each.
#define STATISTICS_RESULT __global REAL *partial
#else
#define STATISTICS_RESULT \
    __global REAL *means, const ulong means_offset, __global REAL *variances, const ulong variances_offset
#endif

#endif
