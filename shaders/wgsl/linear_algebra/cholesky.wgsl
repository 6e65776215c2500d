{#- Cholesky factors of a batch of small symmetric matrices, and the order of the first leading minor that is not positive, or 0: the factor
    of such a matrix is 0. A workgroup factors one matrix. It reads the lower triangle of a and computes the transposed factor, so that each
    step reads rows; the strides of a and of the result exchange the triangles. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "linear_algebra/matrices.wgsl" as matrices with context %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "a", "float32") }}
{{ storage.output(1, "out", "float32") }}
{{ storage.output(2, "info", "int32") }}
{{ storage.parameters("o_a: u32, o_out: u32, o_info: u32, rows: u32, out_row: u32, out_column: u32, start: u32, " ~ matrices.members(["a"])) }}
{{ matrices.functions(["a"]) }}
{{ matrices.main(["a"]) }}
{% call matrices.elements("p.rows", "p.rows") %}
        if (j <= i) { {{ matrices.at("j", "i") }} = {{ matrices.element("a", "i", "j") }}; }
{% endcall %}
    var failed = 0u;
    for (var j = 0u; j < p.rows; j++) {
        {{ matrices.wait() }}
        let minor = {{ matrices.at("j", "j") }};
        if (!is_positive(minor) && failed == 0u) { failed = j + 1u; }
        {{ matrices.wait() }}
        if (failed == 0u) {
            let root = sqrt_f32(minor);
            {{ matrices.own("c", "j", "p.rows") }} { {{ matrices.at("j", "c") }} = select({{ matrices.at("j", "c") }} / root, root, c == j); }
        }
        {{ matrices.wait() }}
        if (failed == 0u) {
            {{ matrices.own("i", "j + 1u", "p.rows") }} {
                let factor = {{ matrices.at("j", "i") }};
                for (var c = i; c < p.rows; c++) { {{ matrices.at("i", "c") }} -= factor * {{ matrices.at("j", "c") }}; }
            }
        }
    }
    {{ matrices.wait() }}
{% call matrices.elements("p.rows", "p.rows") %}
        var value = 0.0f;
        if (j <= i && failed == 0u) { value = {{ matrices.at("j", "i") }}; }
        out_set(p.o_out + matrix * p.rows * p.rows + i * p.out_row + j * p.out_column, value);
{% endcall %}
    if (local_id == 0u) { info_set(p.o_info + matrix, i32(select(0u, p.start + failed, failed != 0u))); }
}
