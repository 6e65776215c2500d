// out[b, r, c] = x[b, c, r] for GPUs. Each group moves a TILE x TILE tile through local memory, so that both the loads along r
// and the stores along c are coalesced. Elements are moved as bits; strides are in elements.

#ifndef UNIT
#define UNIT uint
#endif
#ifndef TILE
#define TILE 32
#endif
#ifndef GROUP
#define GROUP 256
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void pointwise_transpose_local(__global const UNIT *x, const ulong x_offset, __global UNIT *out,
                               const ulong out_offset, const ulong rows, const ulong columns, const long x_column,
                               const long out_row, const ulong b1, const long x_b0, const long x_b1,
                               const long out_b0, const long out_b1) {
    // One column of padding puts the elements of a column into different banks.
    __local UNIT tile[TILE * (TILE + 1)];
    const ulong across = (columns + TILE - 1) / TILE;
    const ulong down = (rows + TILE - 1) / TILE;
    const ulong group = get_group_id(0);
    const ulong batch = group / (across * down);
    const ulong block = group - batch * across * down;
    const ulong first_row = block / across * TILE;
    const ulong first_column = block % across * TILE;
    x += x_offset;
    x += (long)(batch / b1) * x_b0 + (long)(batch % b1) * x_b1;
    out += out_offset;
    out += (long)(batch / b1) * out_b0 + (long)(batch % b1) * out_b1;
    const uint fast = get_local_id(0) % TILE;
    for (uint slow = get_local_id(0) / TILE; slow < TILE; slow += GROUP / TILE) {
        const ulong row = first_row + fast, column = first_column + slow;
        if (row < rows && column < columns) tile[slow * (TILE + 1) + fast] = x[(long)column * x_column + (long)row];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint slow = get_local_id(0) / TILE; slow < TILE; slow += GROUP / TILE) {
        const ulong row = first_row + slow, column = first_column + fast;
        if (row < rows && column < columns) out[(long)row * out_row + (long)column] = tile[fast * (TILE + 1) + slow];
    }
}
