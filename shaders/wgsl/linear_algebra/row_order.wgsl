{#- The order of rows that the exchanges of an LU factorization make: out[i] is the row that moves to row i. An invocation has one matrix and
    exchanges one row after another, from `first_row`. Pivots count rows from `start` rows before these. -#}
{% set GROUP = GROUP | default(32) %}
{% import "lib/storage.wgsl" as storage with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "pivots", "int32") }}
{{ storage.inout(1, "out", "int32") }}
{{ storage.parameters("o_pivots: u32, o_out: u32, rows: u32, steps: u32, first_row: u32, start: i32, matrix_step: u32, step: u32, count: u32") }}
{{ storage.main(GROUP) }}
    let matrix = group_id * {{ GROUP }}u + local_id;
    if (matrix >= p.count) { return; }
    let order = p.o_out + matrix * p.rows;
    for (var i = 0u; i < p.rows; i++) { out[order + i] = i32(i); }
    for (var j = 0u; j < p.steps; j++) {
        let chosen = u32(pivots_at(p.o_pivots + matrix * p.matrix_step + j * p.step) - 1i - p.start);
        if (chosen < p.rows) {
            let moved = out[order + p.first_row + j];
            out[order + p.first_row + j] = out[order + chosen];
            out[order + chosen] = moved;
        }
    }
}
