{#- Gradient of rowwise/norm.wgsl with respect to its input. With n = (x - mean) * scale and s = g * weight, each row gives
    scale * (s - mean(s) - n * mean(s * n)); RMS norm lacks the second term. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CENTRED = CENTRED | default(true) %}
{% set WEIGHT = WEIGHT | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% set PARAMETER_WIDTH = PARAMETER_WIDTH | default(WIDTH) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% set affine = (["weight"] if WEIGHT else []) %}
{% set statistics = (["mean"] if CENTRED else []) + ["scale"] %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "g", DTYPE, WIDTH) }}
{{ storage.input(1, "x", DTYPE, WIDTH) }}
{% if WEIGHT %}
{{ storage.input(2, "weight", WEIGHT, PARAMETER_WIDTH) }}
{% endif %}
{% for name in statistics %}
{{ storage.input(2 + affine | length + loop.index0, name ~ "s", "float32") }}
{% endfor %}
{{ storage.output(2 + affine | length + statistics | length, "dx", DTYPE, WIDTH) }}
{% set members %}
o_g: u32, o_x: u32, {% for name in affine %}o_{{ name }}: u32, {% endfor %}{% for name in statistics %}o_{{ name }}s: u32, {% endfor %}o_dx: u32,
{% endset %}
{{ storage.parameters(members ~ rows.members(["g", "x", "dx"])) }}
{{ rows.declarations() }}
{% set weight_at = "weight_at4" if WIDTH == 4 else "weight_at" %}
{{ groups.reduction("group_sums", "vec2<f32>", "a + b") }}
{{ rows.main(["g", "x", "dx"]) }}
{{ rows.load_row("g") }}
{{ rows.load_row("x") }}
    let mean = {{ "means_at(p.o_means + row)" if CENTRED else "0.0f" }};
    let scale = scales_at(p.o_scales + row);
    var sums = V();
    var products = V();
{% call(k) rows.for_vectors() %}
        let s = {{ rows.value("g", k) }}{% if WEIGHT %} * {{ weight_at }}(p.o_weight + {{ rows.index(k) }}){% endif %};
        sums += s;
        products += s * ({{ rows.value("x", k) }} - mean);
        {{ rows.set_value("g", k, "s") }}
{% endcall %}
    let reduced = group_sums(vec2<f32>(lanes_sum(sums), lanes_sum(products))) / f32(p.length);
    let sum = {{ "reduced.x" if CENTRED else "0.0f" }};
    let product = reduced.y * scale * scale;
{% call(k) rows.for_vectors() %}
        let s = {{ rows.value("g", k) }}{% if WEIGHT and not ROW_VECTORS %} * {{ weight_at }}(p.o_weight + {{ rows.index(k) }}){% endif %};
{{ rows.write("dx", k, "(s - sum - (" ~ rows.value("x", k) ~ " - mean) * product) * scale") }}
{% endcall %}
}
