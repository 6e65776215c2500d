{#- QR factors of a batch of small matrices by Householder reflections I - tau v v^T, as LAPACK's geqrf and orgqr. A workgroup factors one
    matrix. Its invocations have columns of their own, to which they apply the reflections; v has a 1 on the diagonal. RESULT is

  - "reflections": R above and the vectors v below the diagonal, and their scales tau;
  - "factors": Q (rows x kept) and R (kept x columns), where kept is the number of rows of R; Q is in workgroup memory, or with IN_GLOBAL in
    the result;
  - "triangle": R only. -#}
{% set RESULT = RESULT | default("factors") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "linear_algebra/matrices.wgsl" as matrices with context %}
{% set q, start, pitch = ("q", "start", "p.kept") if matrices.IN_GLOBAL else ("formed", "0u", matrices.PITCH ~ "u") %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "a", "float32") }}
{% if RESULT == "reflections" %}
{{ storage.output(1, "out", "float32") }}
{{ storage.output(2, "tau", "float32") }}
{% set members = "o_a: u32, o_out: u32, o_tau: u32, " %}
{% elif RESULT == "factors" %}
{{ storage.inout(1, "q", "float32") }}
{{ storage.output(2, "r", "float32") }}
{% set members = "o_a: u32, o_q: u32, o_r: u32, kept: u32, " %}
{% else %}
{{ storage.output(1, "r", "float32") }}
{% set members = "o_a: u32, o_r: u32, kept: u32, " %}
{% endif %}
{{ storage.parameters(members ~ "rows: u32, columns: u32, " ~ matrices.members(["a"])) }}
{{ matrices.functions(["a"]) }}
var<workgroup> scales: array<f32, {{ matrices.SIZE }}>;
{% if RESULT == "factors" and not matrices.IN_GLOBAL %}
var<workgroup> formed: array<f32, {{ matrices.SIZE * matrices.PITCH }}>;
{% endif %}
{{ matrices.main(["a"]) }}
    let steps = min(p.rows, p.columns);
{% call matrices.elements("p.rows", "p.columns") %}
        {{ matrices.at("i", "j") }} = {{ matrices.element("a", "i", "j") }};
{% endcall %}
    for (var j = 0u; j < steps; j++) {
        {{ matrices.wait() }}
        // Each invocation computes the reflection that maps the column (alpha, x) to (beta, 0), with v = (1, x * scale): LAPACK's larfg.
        let alpha = {{ matrices.at("j", "j") }};
        var largest = 0u;
        for (var i = j + 1u; i < p.rows; i++) { largest = max(largest, bitcast<u32>({{ matrices.at("i", "j") }}) & 0x7fffffffu); }
        var beta = alpha;
        var tau = 0.0f;
        var scale = 0.0f;
        if (largest != 0u) {
            // Scaled by the largest element, so that no square over- or underflows.
            let unit = max(bitcast<f32>(largest), fabs_f32(alpha));
            var squares = (alpha / unit) * (alpha / unit);
            for (var i = j + 1u; i < p.rows; i++) {
                let part = {{ matrices.at("i", "j") }} / unit;
                squares += part * part;
            }
            let norm = unit * sqrt_f32(squares);
            beta = select(norm, -norm, alpha >= 0.0f);
            tau = (beta - alpha) / beta;
            scale = 1.0f / (alpha - beta);
        }
        {{ matrices.own("c", "j + 1u", "p.columns") }} {
            var along = {{ matrices.at("j", "c") }};
            for (var i = j + 1u; i < p.rows; i++) { along += {{ matrices.at("i", "j") }} * scale * {{ matrices.at("i", "c") }}; }
            along *= tau;
            {{ matrices.at("j", "c") }} -= along;
            for (var i = j + 1u; i < p.rows; i++) { {{ matrices.at("i", "c") }} -= {{ matrices.at("i", "j") }} * scale * along; }
        }
        {{ matrices.wait() }}
        {{ matrices.own("i", "j + 1u", "p.rows") }} { {{ matrices.at("i", "j") }} *= scale; }
        if (local_id == 0u) {
            {{ matrices.at("j", "j") }} = beta;
            scales[j] = tau;
        }
    }
    {{ matrices.wait() }}
{% if RESULT == "reflections" %}
{% call matrices.elements("p.rows", "p.columns") %}
        out_set(p.o_out + matrix * p.rows * p.columns + index, {{ matrices.at("i", "j") }});
{% endcall %}
    {{ matrices.own("j", "0u", "steps") }} { tau_set(p.o_tau + matrix * steps + j, scales[j]); }
{% else %}
{% call matrices.elements("p.kept", "p.columns") %}
        var value = 0.0f;
        if (i <= j) { value = {{ matrices.at("i", "j") }}; }
        r_set(p.o_r + matrix * p.kept * p.columns + index, value);
{% endcall %}
{% endif %}
{% if RESULT == "factors" %}
    let start = p.o_q + matrix * p.rows * p.kept;
    {{ matrices.own("c", "0u", "p.kept") }} {
        for (var i = 0u; i < p.rows; i++) { {{ q }}[{{ start }} + i * {{ pitch }} + c] = select(0.0f, 1.0f, i == c); }
        let last = min(steps, c + 1u);
        for (var step = 0u; step < last; step++) {
            let j = last - 1u - step;
            var along = {{ q }}[{{ start }} + j * {{ pitch }} + c];
            for (var i = j + 1u; i < p.rows; i++) { along += {{ matrices.at("i", "j") }} * {{ q }}[{{ start }} + i * {{ pitch }} + c]; }
            along *= scales[j];
            {{ q }}[{{ start }} + j * {{ pitch }} + c] -= along;
            for (var i = j + 1u; i < p.rows; i++) { {{ q }}[{{ start }} + i * {{ pitch }} + c] -= {{ matrices.at("i", "j") }} * along; }
        }
    }
{% if not matrices.IN_GLOBAL %}
    {{ matrices.wait() }}
{% call matrices.elements("p.rows", "p.kept") %}
        q_set(start + index, formed[i * {{ matrices.PITCH }}u + j]);
{% endcall %}
{% endif %}
{% endif %}
}
