{#- LU factors with partial pivoting of a batch of small matrices. A workgroup factors one matrix. RESULT is

  - "factors": L and U in one matrix, pivots numbered from 1, and the number of the first pivot that is 0, or 0; numbers include `start`
    rows before the matrix;
  - "determinant", of square matrices; "logarithm": its sign, and the logarithm of its absolute value. -#}
{% set RESULT = RESULT | default("factors") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "linear_algebra/matrices.wgsl" as matrices with context %}
{{ storage.enable() }}
{% include "lib/logarithm.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "a", "float32") }}
{% if RESULT == "factors" %}
{{ storage.output(1, "out", "float32") }}
{{ storage.output(2, "pivots", "int32") }}
{{ storage.output(3, "info", "int32") }}
{{ storage.parameters("o_a: u32, o_out: u32, o_pivots: u32, o_info: u32, rows: u32, columns: u32, exchange: u32, start: u32, " ~ matrices.members(["a"])) }}
{% elif RESULT == "determinant" %}
{{ storage.output(1, "out", "float32") }}
{{ storage.parameters("o_a: u32, o_out: u32, rows: u32, columns: u32, " ~ matrices.members(["a"])) }}
{% else %}
{{ storage.output(1, "sign", "float32") }}
{{ storage.output(2, "logabsdet", "float32") }}
{{ storage.parameters("o_a: u32, o_sign: u32, o_logabsdet: u32, rows: u32, columns: u32, " ~ matrices.members(["a"])) }}
{% endif %}
{{ matrices.functions(["a"]) }}
var<workgroup> chosen: array<u32, {{ matrices.SIZE }}>;
{{ matrices.main(["a"]) }}
{% call matrices.elements("p.rows", "p.columns") %}
        {{ matrices.at("i", "j") }} = {{ matrices.element("a", "i", "j") }};
{% endcall %}
{{ matrices.eliminate("p.rows", "p.columns", "p.exchange != 0u" if RESULT == "factors" else "true") }}
{% if RESULT == "factors" %}
{% call matrices.elements("p.rows", "p.columns") %}
        out_set(p.o_out + matrix * p.rows * p.columns + index, {{ matrices.at("i", "j") }});
{% endcall %}
    let steps = min(p.rows, p.columns);
    {{ matrices.own("j", "0u", "steps") }} { pivots_set(p.o_pivots + matrix * steps + j, i32(p.start + chosen[j] + 1u)); }
    if (local_id == 0u) { info_set(p.o_info + matrix, i32(select(0u, p.start + failed, failed != 0u))); }
{% else %}
    if (local_id == 0u) {
        var product = 1.0f;
        var total = 0.0f;
        for (var j = 0u; j < p.rows; j++) {
            let pivot = {{ matrices.at("j", "j") }};
            if (chosen[j] != j) { product = -product; }
{% if RESULT == "determinant" %}
            product *= pivot;
{% else %}
            if (is_positive(-pivot)) { product = -product; }
            total += log_f32(fabs_f32(pivot));
{% endif %}
        }
{% if RESULT == "determinant" %}
        out_set(p.o_out + matrix, select(product, 0.0f, failed != 0u));
{% else %}
        sign_set(p.o_sign + matrix, select(product, 0.0f, failed != 0u));
        logabsdet_set(p.o_logabsdet + matrix, select(total, -infinity(), failed != 0u));
{% endif %}
    }
{% endif %}
}
