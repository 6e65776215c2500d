{#- Solutions of a batch of small systems of equations, by elimination with partial pivoting and back substitution, and the number of the
    first pivot that is 0, or 0. With INVERSE the right sides are identity matrices. A workgroup solves one system. Its right sides, up
    to RIGHT_SIZE columns, are in workgroup memory, or with IN_GLOBAL in the result. -#}
{% set INVERSE = INVERSE | default(false) %}
{% set RIGHT_SIZE = RIGHT_SIZE | default(16) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "linear_algebra/matrices.wgsl" as matrices with context %}
{% set OPERANDS = ["a"] if INVERSE else ["a", "b"] %}
{% set OUT = OPERANDS | length %}
{% set right, start, pitch = ("out", "start", "p.columns") if matrices.IN_GLOBAL else ("right", "0u", (RIGHT_SIZE + 1) ~ "u") %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "a", "float32") }}
{{ storage.input(1, "b", "float32") if not INVERSE }}
{{ storage.inout(OUT, "out", "float32") }}
{{ storage.output(OUT + 1, "info", "int32") }}
{{ storage.parameters("o_a: u32, " ~ ("" if INVERSE else "o_b: u32, ") ~ "o_out: u32, o_info: u32, rows: u32, columns: u32, " ~ matrices.members(OPERANDS)) }}
{{ matrices.functions(OPERANDS) }}
var<workgroup> chosen: array<u32, {{ matrices.SIZE }}>;
{% if not matrices.IN_GLOBAL %}
var<workgroup> right: array<f32, {{ matrices.SIZE * (RIGHT_SIZE + 1) }}>;
{% endif %}
{{ matrices.main(OPERANDS) }}
    let start = p.o_out + matrix * p.rows * p.columns;
{% call matrices.elements("p.rows", "p.rows") %}
        {{ matrices.at("i", "j") }} = {{ matrices.element("a", "i", "j") }};
{% endcall %}
{% call matrices.elements("p.rows", "p.columns") %}
        {{ right }}[{{ start }} + i * {{ pitch }} + j] = {{ "select(0.0f, 1.0f, i == j)" if INVERSE else matrices.element("b", "i", "j") }};
{% endcall %}
{{ matrices.eliminate("p.rows", "p.rows", "true", right, start, pitch, "p.columns") }}
    for (var step = 0u; step < p.rows; step++) {
        let j = p.rows - 1u - step;
        let pivot = {{ matrices.at("j", "j") }};
        {{ matrices.own("c", "0u", "p.columns") }} { {{ right }}[{{ start }} + j * {{ pitch }} + c] /= pivot; }
        {{ matrices.wait() }}
        {{ matrices.own("i", "0u", "j") }} {
            let factor = {{ matrices.at("i", "j") }};
            for (var c = 0u; c < p.columns; c++) { {{ right }}[{{ start }} + i * {{ pitch }} + c] -= factor * {{ right }}[{{ start }} + j * {{ pitch }} + c]; }
        }
        {{ matrices.wait() }}
    }
{% if not matrices.IN_GLOBAL %}
{% call matrices.elements("p.rows", "p.columns") %}
        out_set(start + index, right[i * {{ pitch }} + j]);
{% endcall %}
{% endif %}
    if (local_id == 0u) { info_set(p.o_info + matrix, i32(failed)); }
}
