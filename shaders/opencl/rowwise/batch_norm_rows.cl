// Batch norm of x (rows, channels), whose channels are contiguous, and its gradient: images with channels last.
//
// A group of GROUP work-items takes ACROSS vectors of WIDTH channels of every `splits`-th chunk of rows, in LINES rows at a time.
// Statistics and sums over a group's rows are reduced in local memory; with SPLIT several groups share their channels, and a
// second kernel adds up. Rows are read once: a work-item sums its elements and their squares after subtraction of its first
// one, so that large means do not cancel. Variances of work-items and of splits are combined around the mean of all their rows.
// Reductions begin with the last chunk, which was written most recently, and the pass after them with the first one, which they
// read most recently.
//
// With RELU the result is max(result, 0), and with ADDEND max(result + addend, 0). The gradient with RELU passes only elements
// whose result, recomputed from x, is positive.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"
#include "rowwise/batch_norm_parameters.h"

#define GROUP 256
#ifndef ACROSS
#define ACROSS 8
#endif
#define LINES (GROUP / ACROSS)
// Rows of a work-item that are loaded before they are used.
#ifndef AHEAD
#define AHEAD 4
#endif
#define CHUNK (AHEAD * LINES)
#define FIXED_GROUP __attribute__((reqd_work_group_size(GROUP, 1, 1)))

typedef VEC(REAL) V;
#if WIDTH == 1
#define READ(name, i) LOAD(DTYPE, name, i)
#define WRITE(name, value, i) STORE(DTYPE, value, name, i)
#else
#define READ(name, i) LOADV(DTYPE, (name) + (i))
#define WRITE(name, value, i) STOREV(DTYPE, value, (name) + (i))
#endif

// The first channel of a work-item, and whether it exists; the group's chunks are `split`, `split + splits` ...
#define DECLARE_ROWS                                                                         \
    const uint across = get_local_id(0) % ACROSS, line = get_local_id(0) / ACROSS;           \
    const uint channel = (get_group_id(0) * ACROSS + across) * WIDTH;                        \
    const uint split = get_group_id(1), splits = get_num_groups(1);                          \
    const uint chunks = (rows + CHUNK - 1) / CHUNK;                                          \
    const bool exists = channel < channels;
// Work-items without channels read the last ones.
#define READ_CHANNEL min(channel, channels - WIDTH)
#define FOR_CHUNKS(chunk) for (uint chunk = split; exists && chunk < chunks; chunk += splits)
// A work-item's first row of a chunk, for reductions, which begin at the end, and for what follows them.
#define REDUCED_ROW(chunk) ((chunks - 1 - (chunk)) * CHUNK + line)
#define APPLIED_ROW(chunk) ((chunk) * CHUNK + line)

// Parameters per channel. Each work-item computes the ones of a channel, `at`, and SHARE hands them to the group, in local memory:
// after a barrier SHARED(name, k) declares the vector of the work-item's own channels.
#define CHANNELS (ACROSS * WIDTH)
#define DECLARE_SHARED(count)                           \
    __local V shared_of_group[count][ACROSS];           \
    const uint own = get_local_id(0) % CHANNELS;        \
    const uint at = min((uint)get_group_id(0) * CHANNELS + own, channels - 1);
#define SHARE(k, value) \
    if (get_local_id(0) < CHANNELS) ((__local REAL *)shared_of_group[k])[own] = (value);
#define SHARED(name, k) const V name = shared_of_group[k][across];

// Replace a vector of each line by the sum over all lines.
#define LINES_SUM(value)                                                              \
    {                                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                                 \
        sums_of_lines[get_local_id(0)] = value;                                       \
        for (uint distance = LINES / 2; distance > 0; distance /= 2) {                \
            barrier(CLK_LOCAL_MEM_FENCE);                                             \
            if (line < distance)                                                      \
                sums_of_lines[get_local_id(0)] += sums_of_lines[get_local_id(0) + distance * ACROSS]; \
        }                                                                             \
        barrier(CLK_LOCAL_MEM_FENCE);                                                 \
        value = sums_of_lines[across];                                                \
    }

// Store the lanes of `value` at consecutive addresses of REAL.
#define STORE_CHANNELS(to, value) \
    for (uint e = 0; e < WIDTH; e++) (to)[e] = ((__private REAL *)&(value))[e];

#if RELU
// Relu keeps a NaN.
#define RECTIFIED(v) SELECT(v, (V)(0), (v) < (V)(0))
#define PASSED(g, x) SELECT((V)(0), g, NORMAL(x) > (V)(0))
#else
#define RECTIFIED(v) (v)
#define PASSED(g, x) (g)
#endif
#define NORMAL(x) (((x)-mean) * scale + shift)
#if ADDEND
#define ADDENDS __global const STORAGE(DTYPE) *addend, const ulong addend_offset, const long addend_row,
#else
#define ADDENDS
#endif
// A work-item loads its first rows between LOAD_SCALES and SHARE_SCALES, so that it waits for memory once.
#define LOAD_SCALES                                     \
    const REAL own_mean = means[means_offset + at];     \
    const REAL own_scale = DEVIATION(at) * WEIGHT_OF(at), own_shift = BIAS_OF(at);
#define SHARE_SCALES SHARE(0, own_mean) SHARE(1, own_scale) SHARE(2, own_shift)
#define SHARED_SCALES SHARED(mean, 0) SHARED(scale, 1) SHARED(shift, 2)

// Rows of one of `splits` splits of the reductions. The last chunk, which is the first split's first one, may be shorter.
#define ROWS_OF(split)                                        \
    (REAL)((chunks - (split) + splits - 1) / splits * CHUNK - \
           ((split) == 0 ? chunks * CHUNK - rows : 0))

__kernel NO_AUTOVEC FIXED_GROUP void batch_row_statistics(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                                          STATISTICS_RESULT, const long x_row, const uint rows,
                                                          const uint channels) {
    START_NEXT
    AWAIT_INPUTS
    __local V sums_of_lines[GROUP];
    DECLARE_ROWS
    x += (long)x_offset + channel;
    const uint first = REDUCED_ROW(split);
    const V around = exists && first < rows ? READ(x, first * x_row) : (V)(0);
    V sum = (V)(0), squares = (V)(0);
    uint found = 0;
    FOR_CHUNKS(chunk) {
        const uint from = REDUCED_ROW(chunk);
        V values[AHEAD];
#pragma unroll
        for (uint i = 0; i < AHEAD; i++) {
            const uint row = from + i * LINES;
            found += row < rows;
            values[i] = row < rows ? READ(x, row * x_row) - around : (V)(0);
        }
#pragma unroll
        for (uint i = 0; i < AHEAD; i++) {
            sum += values[i];
            squares += values[i] * values[i];
        }
    }
    const REAL count = ROWS_OF(split), mine = (REAL)found;
    const V own_mean = around + sum / max(mine, (REAL)1);
    squares -= sum * (sum / max(mine, (REAL)1));
    V mean = own_mean * mine;
    LINES_SUM(mean)
    mean /= count;
    squares += (own_mean - mean) * (own_mean - mean) * mine;
    LINES_SUM(squares)
    if (line || !exists) return;
#if SPLIT
    STORE_CHANNELS(partial + split * channels + channel, mean)
    STORE_CHANNELS(partial + (get_num_groups(1) + split) * channels + channel, squares)
#else
    const V variance = squares / count;
    STORE_CHANNELS(means + means_offset + channel, mean)
    STORE_CHANNELS(variances + variances_offset + channel, variance)
#endif
}

// A group combines ACROSS channels, its lines the splits.
__kernel FIXED_GROUP void batch_row_reduce_statistics(__global const REAL *partial, __global REAL *means,
                                                      const ulong means_offset, __global REAL *variances,
                                                      const ulong variances_offset, const uint rows, const uint channels,
                                                      const uint splits) {
    START_NEXT
    AWAIT_INPUTS
    __local REAL sums_of_lines[GROUP];
    const uint chunks = (rows + CHUNK - 1) / CHUNK;
    const uint across = get_local_id(0) % ACROSS, line = get_local_id(0) / ACROSS;
    const uint channel = get_group_id(0) * ACROSS + across;
    REAL mean = 0, squares = 0;
    for (uint split = line; channel < channels && split < splits; split += LINES)
        mean += partial[split * channels + channel] * ROWS_OF(split);
    LINES_SUM(mean)
    mean /= (REAL)rows;
    for (uint split = line; channel < channels && split < splits; split += LINES) {
        const REAL difference = partial[split * channels + channel] - mean;
        squares += partial[(splits + split) * channels + channel] + difference * difference * ROWS_OF(split);
    }
    LINES_SUM(squares)
    if (line || channel >= channels) return;
    means[means_offset + channel] = mean;
    variances[variances_offset + channel] = squares / (REAL)rows;
}

// Combines moments of `blocks` blocks of 64 rows, computed by a product (lib/column_moments.h), into means and variances, four
// channels per group. Means of blocks are taken relative to the first one.
#define BLOCK_ROWS 64
#define BLOCKS_AHEAD 8
#define GROUP_SUM(value)                                                                        \
    {                                                                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        sums_of_items[get_local_id(0)] = value;                                                 \
        for (uint distance = GROUP / 2; distance > 0; distance /= 2) {                          \
            barrier(CLK_LOCAL_MEM_FENCE);                                                       \
            if (get_local_id(0) < distance)                                                     \
                sums_of_items[get_local_id(0)] += sums_of_items[get_local_id(0) + distance];    \
        }                                                                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        value = sums_of_items[0];                                                               \
    }
__kernel FIXED_GROUP void batch_row_reduce_blocks(__global const float *moments, __global REAL *means,
                                                  const ulong means_offset, __global REAL *variances,
                                                  const ulong variances_offset, const uint blocks, const uint channels) {
    START_NEXT
    AWAIT_INPUTS
    __local float4 sums_of_items[GROUP];
    const uint vectors = channels / 4;
    __global const float4 *block_means = (__global const float4 *)moments + get_group_id(0);
    __global const float4 *block_squares = block_means + (ulong)blocks * vectors;
    const float4 around = block_means[0];
    float4 sum = (float4)(0), squares = (float4)(0);
    for (uint from = get_local_id(0); from < blocks; from += BLOCKS_AHEAD * GROUP) {
        float4 distances[BLOCKS_AHEAD], within[BLOCKS_AHEAD];
#pragma unroll
        for (uint i = 0; i < BLOCKS_AHEAD; i++) {
            const uint block = from + i * GROUP;
            distances[i] = block < blocks ? block_means[block * vectors] - around : (float4)(0);
            within[i] = block < blocks ? block_squares[block * vectors] : (float4)(0);
        }
#pragma unroll
        for (uint i = 0; i < BLOCKS_AHEAD; i++) {
            sum += distances[i];
            squares += within[i] + distances[i] * distances[i] * BLOCK_ROWS;
        }
    }
    GROUP_SUM(sum)
    GROUP_SUM(squares)
    if (get_local_id(0)) return;
    const float4 shift = sum / blocks, mean = around + shift;
    const float4 variance = fmax((squares / BLOCK_ROWS - sum * shift) / blocks, (float4)(0));
    for (uint e = 0; e < 4; e++) {
        means[means_offset + get_group_id(0) * 4 + e] = ((__private const float *)&mean)[e];
        variances[variances_offset + get_group_id(0) * 4 + e] = ((__private const float *)&variance)[e];
    }
}

#if ADDEND
#define READ_ADDEND(row) READ(addend, (row) * addend_row)
#else
#define READ_ADDEND(row) (V)(0)
#endif
#define LOAD_ADDED_CHUNK(chunk)                                         \
    _Pragma("unroll") for (uint i = 0; i < AHEAD; i++) {                \
        const uint row = min(APPLIED_ROW(chunk) + i * LINES, rows - 1); \
        values[i] = READ(x, row * x_row);                               \
        added[i] = READ_ADDEND(row);                                    \
    }

__kernel NO_AUTOVEC FIXED_GROUP void batch_row_apply(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                                     ADDENDS WEIGHTS BIASES __global STORAGE(DTYPE) *out,
                                                     const ulong out_offset, STATISTICS const REAL eps, const long x_row,
                                                     const uint rows, const uint channels) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS
    DECLARE_SHARED(3)
    x += (long)x_offset + READ_CHANNEL;
    out += out_offset + channel;
#if ADDEND
    addend += (long)addend_offset + READ_CHANNEL;
#endif
    V values[AHEAD], added[AHEAD];
    LOAD_SCALES
    LOAD_ADDED_CHUNK(split)
    SHARE_SCALES
    barrier(CLK_LOCAL_MEM_FENCE);
    SHARED_SCALES
    for (uint chunk = split; exists && chunk < chunks;) {
        const uint from = APPLIED_ROW(chunk);
#pragma unroll
        for (uint i = 0; i < AHEAD; i++) {
            const uint row = from + i * LINES;
            const V value = NORMAL(values[i]) + added[i];
            if (row < rows) WRITE(out, RECTIFIED(value), (ulong)row * channels);
        }
        chunk += splits;
        if (chunk < chunks) LOAD_ADDED_CHUNK(chunk)
    }
}

// Load a work-item's rows of a chunk; `row_of` gives the first.
#define LOAD_CHUNK(chunk, row_of)                                               \
    _Pragma("unroll") for (uint i = 0; i < AHEAD; i++) {                        \
        const uint row = min(row_of(chunk) + i * LINES, rows - 1);              \
        values[i] = READ(x, row * x_row);                                       \
        slopes[i] = READ(g, row * g_row);                                       \
    }

// Per split and channel the sums of g * (x - mean) and of g, (splits, 2, channels).
__kernel NO_AUTOVEC FIXED_GROUP void batch_row_sums(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                                    __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if RELU
                                                    WEIGHTS BIASES STATISTICS const REAL eps,
#else
                                                    __global const REAL *means, const ulong means_offset,
#endif
                                                    __global REAL *partial, const long g_row, const long x_row,
                                                    const uint rows, const uint channels) {
    START_NEXT
    AWAIT_INPUTS
    __local V sums_of_lines[GROUP];
    DECLARE_ROWS
    DECLARE_SHARED(3)
    g += (long)g_offset + READ_CHANNEL;
    x += (long)x_offset + READ_CHANNEL;
    V values[AHEAD], slopes[AHEAD];
#if RELU
    LOAD_SCALES
#else
    const REAL own_mean = means[means_offset + at];
#endif
    LOAD_CHUNK(split, REDUCED_ROW)
#if RELU
    SHARE_SCALES
#else
    SHARE(0, own_mean)
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if RELU
    SHARED_SCALES
#else
    SHARED(mean, 0)
#endif
    V products = (V)(0), grads = (V)(0);
    for (uint chunk = split; exists && chunk < chunks;) {
        const uint from = REDUCED_ROW(chunk);
#pragma unroll
        for (uint i = 0; i < AHEAD; i++) {
            if (from + i * LINES >= rows) break;
            const V passed = PASSED(slopes[i], values[i]);
            products += passed * (values[i] - mean);
            grads += passed;
        }
        chunk += splits;
        if (chunk < chunks) LOAD_CHUNK(chunk, REDUCED_ROW)
    }
    // A work-item adds up the lines of one channel.
    const uint to = get_group_id(0) * CHANNELS + own;
    const bool adds = get_local_id(0) < CHANNELS && to < channels;
#pragma unroll
    for (uint kind = 0; kind < 2; kind++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        sums_of_lines[get_local_id(0)] = kind ? grads : products;
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL total = 0;
#pragma unroll 8
        for (uint i = 0; adds && i < LINES; i++) total += ((__local const REAL *)sums_of_lines)[i * CHANNELS + own];
        if (adds) partial[(split * 2 + kind) * channels + to] = total;
    }
}

// The gradients of weight and bias, which are also stored in `sums` (2, channels).
__kernel FIXED_GROUP void batch_row_reduce_sums(__global const REAL *partial, __global const REAL *variances,
                                                const ulong variances_offset, __global STORAGE(GRADIENT_DTYPE) *dweight,
                                                const ulong dweight_offset, __global STORAGE(GRADIENT_DTYPE) *dbias,
                                                const ulong dbias_offset, __global REAL *sums, const REAL eps,
                                                const uint channels, const uint splits) {
    START_NEXT
    AWAIT_INPUTS
    __local REAL sums_of_lines[GROUP];
    const uint across = get_local_id(0) % ACROSS, line = get_local_id(0) / ACROSS;
    const uint channel = get_group_id(0) * ACROSS + across;
    REAL product = 0, grad = 0;
    for (uint split = line; channel < channels && split < splits; split += LINES) {
        product += partial[split * 2 * channels + channel];
        grad += partial[(split * 2 + 1) * channels + channel];
    }
    LINES_SUM(product)
    LINES_SUM(grad)
    if (line || channel >= channels) return;
    product *= DEVIATION(channel);
    sums[channel] = product;
    sums[channels + channel] = grad;
    STORE(GRADIENT_DTYPE, product, dweight, dweight_offset + channel);
    STORE(GRADIENT_DTYPE, grad, dbias, dbias_offset + channel);
}

__kernel NO_AUTOVEC FIXED_GROUP void batch_row_input_grad(
    __global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x, const ulong x_offset,
    WEIGHTS BIASES STATISTICS __global STORAGE(DTYPE) *dx, const ulong dx_offset, __global const REAL *sums, const REAL eps,
    const long g_row, const long x_row, const uint rows, const uint channels) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS
    DECLARE_SHARED(5)
    g += (long)g_offset + READ_CHANNEL;
    x += (long)x_offset + READ_CHANNEL;
    dx += dx_offset + channel;
    V values[AHEAD], slopes[AHEAD];
    LOAD_SCALES
    const REAL own_product = sums[at] / (REAL)rows * DEVIATION(at), own_grad = sums[channels + at] / (REAL)rows;
    LOAD_CHUNK(split, APPLIED_ROW)
    SHARE_SCALES
    SHARE(3, own_product)
    SHARE(4, own_grad)
    barrier(CLK_LOCAL_MEM_FENCE);
    SHARED_SCALES
    SHARED(product, 3)
    SHARED(grad, 4)
    for (uint chunk = split; exists && chunk < chunks;) {
        const uint from = APPLIED_ROW(chunk);
#pragma unroll
        for (uint i = 0; i < AHEAD; i++) {
            const uint row = from + i * LINES;
            const V passed = PASSED(slopes[i], values[i]);
            if (row < rows) WRITE(dx, (passed - grad - (values[i] - mean) * product) * scale, (ulong)row * channels);
        }
        chunk += splits;
        if (chunk < chunks) LOAD_CHUNK(chunk, APPLIED_ROW)
    }
}
