{#- Solutions of a batch of small systems of equations with lower triangular matrices, by substitution. A workgroup solves up to COLUMNS right
    sides: its invocations form COLUMNS columns and share the rows of each. Strides may be negative: an upper triangle is a
    lower one from the other end. -#}
{% set COLUMNS = COLUMNS | default(8) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "linear_algebra/matrices.wgsl" as matrices with context %}
{% set PITCH = COLUMNS + 1 %}
{% set LANES = matrices.GROUP // COLUMNS %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "a", "float32") }}
{{ storage.input(1, "b", "float32") }}
{{ storage.output(2, "out", "float32") }}
{{ storage.parameters("o_a: u32, o_b: u32, o_out: u32, a_first: u32, b_first: u32, out_first: u32, out_row: u32, rows: u32, columns: u32, tiles: u32, unit: u32, " ~ matrices.members(["a", "b"])) }}
{{ matrices.functions(["a", "b"]) }}
var<workgroup> x: array<f32, {{ matrices.SIZE * PITCH }}>;
{{ matrices.main(["a", "b"], "p.tiles") }}
    let first = (group_id - matrix * p.tiles) * {{ COLUMNS }}u;
    let width = min(p.columns - first, {{ COLUMNS }}u);
    let column = local_id % {{ COLUMNS }}u;
    let lane = local_id / {{ COLUMNS }}u;
{% call matrices.elements("p.rows", "p.rows") %}
        if (j <= i) { {{ matrices.at("i", "j") }} = {{ matrices.element("a", "i", "j") | replace("a_start", "a_start + p.a_first") }}; }
{% endcall %}
{% call matrices.elements("p.rows", "width") %}
        x[i * {{ PITCH }}u + j] = {{ matrices.element("b", "i", "first + j") | replace("b_start", "b_start + p.b_first") }};
{% endcall %}
    {{ matrices.wait() }}
    for (var j = 0u; j < p.rows; j++) {
        let pivot = {{ matrices.at("j", "j") }};
        if (lane == 0u && column < width && p.unit == 0u) { x[j * {{ PITCH }}u + column] /= pivot; }
        {{ matrices.wait() }}
        if (column < width) {
            for (var i = j + 1u + lane; i < p.rows; i += {{ LANES }}u) { x[i * {{ PITCH }}u + column] -= {{ matrices.at("i", "j") }} * x[j * {{ PITCH }}u + column]; }
        }
        {{ matrices.wait() }}
    }
{% call matrices.elements("p.rows", "width") %}
        out_set(p.o_out + p.out_first + matrix * p.rows * p.columns + i * p.out_row + first + j, x[i * {{ PITCH }}u + j]);
{% endcall %}
}
