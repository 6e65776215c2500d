// Attention of a few queries, at most ROWS, as when text is generated: it is bound by reading the keys and values, which are read once and
// where they lie. A group takes a run of keys of one head; its TEAMS teams of LANES work-items each take EACH keys at a time, with a
// running maximum, sum and result per query that are rescaled when the maximum grows. Where a head is shared out among several groups
// (PARTS), attention/decode_reduce.cl puts their results together. Source: Dao et al., Flash-Decoding for long-context inference, 2023.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
// Features side by side that a work-item reads at once; the lengths of keys and values are multiples of it.
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef TEAMS
#define TEAMS 1
#endif
#ifndef EACH
#define EACH 8
#endif
#ifndef ROWS
#define ROWS 1
#endif
// Vectors of a key and of a value for each work-item of a team.
#ifndef KEY_VECTORS
#define KEY_VECTORS 16
#endif
#ifndef VALUE_VECTORS
#define VALUE_VECTORS 16
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "attention/arguments.h"
#include "lib/vectors.h"
#include "lib/exponential.h"

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"
#define GROUP (LANES * TEAMS)
#define PART_FACTS 2
#define VALUES (VALUE_VECTORS * LANES * WIDTH)

#if LANES == 1
#define OVER_TEAM(value, index)
#elif TENSOR_CORES
inline float over_warp(float value) {
#pragma unroll
    for (uint distance = LANES / 2; distance > 0; distance /= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(distance));
        value += other;
    }
    return value;
}
#define OVER_TEAM(value, index) value = over_warp(value)
#else
// All sums of a team at once: see below.
#define OVER_TEAM(value, index) sums[index * GROUP + get_local_id(0)] = value
#define SUMS_IN_MEMORY
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_decode(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND
#if PARTS
    __global REAL *parts,
#else
    RESULT(OUT_DTYPE, out), __global REAL *lse, const ulong lse_offset,
#endif
    const uint keys_each, LENGTHS, STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
#if TEAMS > 1
    __local REAL joined[TEAMS * VALUES], tops_of[TEAMS], totals_of[TEAMS];
#endif
#ifdef SUMS_IN_MEMORY
    __local REAL sums[EACH * ROWS * GROUP];
#endif
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
    const uint head = get_group_id(1);
    HEAD_NUMBERS(head);
    FIND(q);
    FIND(k);
    FIND(v);
    FIND_MASK;
    const uint begin = get_group_id(0) * keys_each;
    const uint end = min(min(begin + keys_each, s), KEYS_SEEN(t));
    V queries[ROWS][KEY_VECTORS], results[ROWS][VALUE_VECTORS];
    REAL tops[ROWS], totals[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        tops[r] = -INFINITY;
        totals[r] = 0;
#pragma unroll
        for (uint j = 0; j < KEY_VECTORS; j++) {
            const uint c = (me + j * LANES) * WIDTH;
            queries[r][j] = r < t && c < d ? LOADV(DTYPE, q + r * q_row + c) * scale : (V)(0);
        }
#pragma unroll
        for (uint j = 0; j < VALUE_VECTORS; j++) results[r][j] = (V)(0);
    }
    // Every team makes as many turns, because they may have to wait for each other.
    for (uint turn = begin; turn < end; turn += EACH * TEAMS) {
        const uint first = turn + team * EACH;
        REAL scores[ROWS][EACH];
#pragma unroll
        for (uint i = 0; i < EACH; i++) {
            __global const STORAGE(DTYPE) *key = k + (long)min(first + i, end - 1) * k_row;
            V product[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++) product[r] = (V)(0);
#pragma unroll
            for (uint j = 0; j < KEY_VECTORS; j++) {
                const uint c = (me + j * LANES) * WIDTH;
                const V x = LOADV(DTYPE, key + (c < d ? c : 0));
#pragma unroll
                for (uint r = 0; r < ROWS; r++) product[r] += queries[r][j] * x;
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++) {
                scores[r][i] = LANES_SUM(product[r]);
                OVER_TEAM(scores[r][i], (r * EACH + i));
            }
        }
#ifdef SUMS_IN_MEMORY
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint i = 0; i < EACH; i++) {
                scores[r][i] = 0;
                for (uint lane = 0; lane < LANES; lane++)
                    scores[r][i] += sums[(r * EACH + i) * GROUP + team * LANES + lane];
            }
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            REAL top = tops[r];
#pragma unroll
            for (uint i = 0; i < EACH; i++) {
                const uint key = first + i;
                const bool seen = key < end && SEEN(r, key);
#if MASK == 2
                if (seen) scores[r][i] += ADDED(r, key);
#endif
                scores[r][i] = seen ? scores[r][i] : -INFINITY;
                top = LARGER(top, scores[r][i]);
            }
            // While everything was masked there is nothing to subtract: exp(-inf - 0) is 0.
            const REAL subtracted = top == -INFINITY ? 0 : top;
            const REAL shrink = exp(tops[r] - subtracted);
            tops[r] = top;
            totals[r] *= shrink;
#pragma unroll
            for (uint i = 0; i < EACH; i++) {
                scores[r][i] = exp(scores[r][i] - subtracted);
                totals[r] += scores[r][i];
            }
#pragma unroll
            for (uint j = 0; j < VALUE_VECTORS; j++) results[r][j] *= shrink;
        }
#pragma unroll
        for (uint i = 0; i < EACH; i++) {
            __global const STORAGE(DTYPE) *value = v + (long)min(first + i, end - 1) * v_row;
#pragma unroll
            for (uint j = 0; j < VALUE_VECTORS; j++) {
                const uint c = (me + j * LANES) * WIDTH;
                const V x = LOADV(DTYPE, value + (c < e ? c : 0));
#pragma unroll
                for (uint r = 0; r < ROWS; r++) results[r][j] += scores[r][i] * x;
            }
        }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
#if TEAMS > 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me == 0) {
            tops_of[team] = tops[r];
            totals_of[team] = totals[r];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL top = tops_of[0];
        for (uint other = 1; other < TEAMS; other++) top = fmax(top, tops_of[other]);
        const REAL subtracted = top == -INFINITY ? 0 : top;
        REAL total = 0;
        for (uint other = 0; other < TEAMS; other++) total += totals_of[other] * exp(tops_of[other] - subtracted);
        const REAL share = exp(tops[r] - subtracted);
#else
        const REAL top = tops[r], total = totals[r], share = 1;
#endif
#if PARTS
        __global REAL *to = parts + (((ulong)head * t + r) * get_num_groups(0) + get_group_id(0)) * (e + PART_FACTS);
        const REAL factor = 1;
#else
        const REAL factor = total == 0 ? 0 : 1 / total;
#endif
        REAL line[VALUE_VECTORS * WIDTH];
#pragma unroll
        for (uint j = 0; j < VALUE_VECTORS; j++) *(__private V *)&line[j * WIDTH] = results[r][j] * (share * factor);
#if TEAMS > 1
#pragma unroll
        for (uint j = 0; j < VALUE_VECTORS; j++)
#pragma unroll
            for (uint i = 0; i < WIDTH; i++)
                joined[team * VALUES + (me + j * LANES) * WIDTH + i] = line[j * WIDTH + i];
        barrier(CLK_LOCAL_MEM_FENCE);
#define FROM get_local_id(0)
#define STEP GROUP
#else
#define FROM 0
#define STEP 1
#endif
        if (r < t) {
            for (uint c = FROM; c < e; c += STEP) {
#if TEAMS > 1
                REAL made = 0;
                for (uint other = 0; other < TEAMS; other++) made += joined[other * VALUES + c];
#else
                const REAL made = line[c];
#endif
#if PARTS
                to[c] = made;
#else
                STORE(OUT_DTYPE, made, out, out_offset + ((ulong)head * t + r) * e + c);
#endif
            }
            if (get_local_id(0) == 0) {
#if PARTS
                to[e] = top;
                to[e + 1] = total;
#else
                lse[lse_offset + (ulong)head * t + r] = log(total) + (top == -INFINITY ? 0 : top);
#endif
            }
        }
    }
}
