{#- Means along one axis of each of several contiguous tensors: of `rows` elements at distances of `columns`; with SQUARE of their squares. If
    columns is 1, workgroups process lines of `rows` elements, else strips of columns. The numbers of lines and columns of a workgroup are
    those of mean_tasks (backends/common/problems/optim.py). -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "x", "dtype": "float32", "read_only": true}, {"name": "out", "dtype": "float32", "access": "rows"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set CHUNK = CHUNK | default(4096) %}
{% set SLOTS = SLOTS | default(2) %}
{% set WIDTH = 1 %}
{% set SQUARE = SQUARE | default(false) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{{ storage.parameters(slots.members()) }}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
fn lines_of_group(rows: u32) -> u32 { return max(1u, {{ CHUNK }}u / rows); }
fn columns_of_group(rows: u32) -> u32 { return max({{ GROUP }}u, {{ CHUNK }}u / rows / {{ GROUP }}u * {{ GROUP }}u); }
fn groups_of(size: u32, rows: u32, columns: u32) -> u32 {
    if (columns == 1u) { return (size / rows + lines_of_group(rows) - 1u) / lines_of_group(rows); }
    return size / (rows * columns) * ((columns + columns_of_group(rows) - 1u) / columns_of_group(rows));
}
fn term(value: f32) -> f32 { return {{ "value * value" if SQUARE else "value" }}; }
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let end0 = groups_of(p.size0, p.rows0, p.columns0);
{% for s in range(1, SLOTS) %}
    let end{{ s }} = end{{ s - 1 }} + groups_of(p.size{{ s }}, p.rows{{ s }}, p.columns{{ s }});
{% endfor %}
{% for s in range(SLOTS) %}
    {{ "else " if s }}if (group_id < end{{ s }}) {
        let task = group_id{{ " - end" ~ (s - 1) if s }};
        let rows = p.rows{{ s }};
        let columns = p.columns{{ s }};
        if (columns == 1u) {
            let first = task * lines_of_group(rows);
            let stop = min(first + lines_of_group(rows), p.size{{ s }} / rows);
            for (var line = first; line < stop; line++) {
                var sum = 0.0;
                for (var i = local_id; i < rows; i += {{ GROUP }}u) { sum += term(x{{ s }}_at(p.o_x{{ s }} + line * rows + i)); }
                sum = group_sum(sum);
                if (local_id == 0u) { out{{ s }}_set(p.o_out{{ s }} + line, sum / f32(rows)); }
            }
        } else {
            let strips = (columns + columns_of_group(rows) - 1u) / columns_of_group(rows);
            let matrix = task / strips;
            let begin = task % strips * columns_of_group(rows);
            let stop = min(begin + columns_of_group(rows), columns);
            for (var i = begin + local_id; i < stop; i += {{ GROUP }}u) {
                var sum = 0.0;
                for (var row = 0u; row < rows; row++) { sum += term(x{{ s }}_at(p.o_x{{ s }} + (matrix * rows + row) * columns + i)); }
                out{{ s }}_set(p.o_out{{ s }} + matrix * columns + i, sum / f32(rows));
            }
        }
    }
{% endfor %}
}
