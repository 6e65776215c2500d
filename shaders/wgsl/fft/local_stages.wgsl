{#- Discrete Fourier transforms of rows of LENGTH numbers that a workgroup exchanges in its memory between stages of butterflies, in the order
    of Stockham, as shaders/opencl/fft/local_stages.cl. A workgroup has LANES rows and WORKERS invocations for each. -#}
{% set LENGTH = LENGTH | default(64) %}
{% set RADICES = RADICES | default("8 8") %}
{% set LANES = LANES | default(4) %}
{% set WORKERS = WORKERS | default(8) %}
{% set LANES_FIRST_LOAD = LANES_FIRST_LOAD | default(0) %}
{% set LANES_FIRST_STORE = LANES_FIRST_STORE | default(0) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "fft/elements.wgsl" as elements with context %}
{% import "fft/butterflies.wgsl" as butterflies %}
{% set radices = RADICES.split() | map("int") | list %}
{{ storage.enable() }}
{{ elements.declare(storage) }}
{{ storage.parameters(elements.members()) }}
{{ butterflies.functions() }}
{{ elements.functions() }}
{#- Rows are padded, so that butterflies at a power of two do not share a bank. -#}
{% set ROW = LENGTH + LENGTH // 16 + 1 %}
var<workgroup> exchange: array<vec2<f32>, {{ LANES * ROW }}>;
fn place(lane: u32, k: u32) -> u32 { return lane * {{ ROW }}u + k + k / 16u; }

{#- Each butterfly of an invocation: its number `b`, and `j` in the row. -#}
{% macro for_butterflies(radix, worker) %}
{% set count = LENGTH // radix %}
{% for b in range((count + WORKERS - 1) // WORKERS) %}
    {
    let j = {{ worker }} + {{ b * WORKERS }}u;
{% if (b + 1) * WORKERS > count %}
    if (j < {{ count }}u) {
{% else %}
    {
{% endif %}
{{ caller(b) }}
    }
    }
{% endfor %}
{% endmacro %}

{{ storage.main(LANES * WORKERS) }}
    if (group_id >= {{ elements.number("groups") }}) { return; }
    let index = group_id / {{ elements.number("blocks") }};
{{ elements.outer("index") }}
    let lane = local_id {{ "%" if LANES_FIRST_LOAD else "/" }} {{ LANES if LANES_FIRST_LOAD else WORKERS }}u;
    let worker = local_id {{ "/" if LANES_FIRST_LOAD else "%" }} {{ LANES if LANES_FIRST_LOAD else WORKERS }}u;
{% set LAST_FIRST = LANES_FIRST_STORE if radices | length > 1 else LANES_FIRST_LOAD %}
    let last_lane = local_id {{ "%" if LAST_FIRST else "/" }} {{ LANES if LAST_FIRST else WORKERS }}u;
    let last_worker = local_id {{ "/" if LAST_FIRST else "%" }} {{ LANES if LAST_FIRST else WORKERS }}u;
{% set registers = namespace(most=1) %}
{% for radix in radices %}
{% set registers.most = [registers.most, radix * ((LENGTH // radix + WORKERS - 1) // WORKERS)] | max %}
{% endfor %}
{% for i in range(registers.most) %}
    var v{{ i }} = vec2<f32>();
{% endfor %}
    let row = group_id % {{ elements.number("blocks") }} * {{ LANES }}u + lane;
    let source = {{ elements.begin("source", "row") }};
    let source_step = {{ elements.step("source") }};
    let position = outer.w * {{ elements.number("source_outer") }} + row * {{ elements.number("source_lane") }};
    if (row < {{ elements.number("lanes") }}) {
{% call(b) for_butterflies(radices[0], "worker") %}
{% for c in range(radices[0]) %}
    v{{ b * radices[0] + c }} = load(source + (j + {{ c * (LENGTH // radices[0]) }}u) * source_step, position + (j + {{ c * (LENGTH // radices[0]) }}u) * {{ elements.number("source_element") }});
{% endfor %}
{% endcall %}
    }
{% set stages = namespace(span=1) %}
{% for radix in radices %}
{% set span = stages.span %}
{% set at = "last_" if loop.last else "" %}
{% if not loop.first %}
{% set before = radices[loop.index0 - 1] %}
    workgroupBarrier();
{% set before_span = span // before %}
{% call(b) for_butterflies(before, "worker") %}
{% for c in range(before) %}
    exchange[place(lane, j / {{ before_span }}u * {{ span }}u + j % {{ before_span }}u + {{ c * before_span }}u)] = v{{ b * before + c }};
{% endfor %}
{% endcall %}
    workgroupBarrier();
{% call(b) for_butterflies(radix, at ~ "worker") %}
{% for c in range(radix) %}
    v{{ b * radix + c }} = exchange[place({{ at }}lane, j + {{ c * (LENGTH // radix) }}u)];
{% endfor %}
{% for c in range(1, radix) %}
    v{{ b * radix + c }} = product(v{{ b * radix + c }}, table[{{ span - radices[0] + (c - 1) * span }}u + j % {{ span }}u]);
{% endfor %}
{% endcall %}
{% endif %}
{% call(b) for_butterflies(radix, at ~ "worker") %}
{% set names = namespace(all=[]) %}
{% for c in range(radix) %}{% set names.all = names.all + ["v" ~ (b * radix + c)] %}{% endfor %}
{{ butterflies.butterfly(names.all) }}
{% endcall %}
{% set stages.span = span * radix %}
{% endfor %}
{% set last = radices[-1] %}
{% set span = LENGTH // last %}
    let last_row = group_id % {{ elements.number("blocks") }} * {{ LANES }}u + last_lane;
    let stored = {{ elements.begin("target", "last_row") }};
    let stored_step = {{ elements.step("target") }};
    let stored_position = outer.w * {{ elements.number("target_outer") }} + last_row * {{ elements.number("target_lane") }};
{% if HALF_TARGET | default(0) %}
    workgroupBarrier();
{% call(b) for_butterflies(last, "last_worker") %}
{% for c in range(last) %}
    exchange[place(last_lane, j + {{ c * span }}u)] = v{{ b * last + c }};
{% endfor %}
{% endcall %}
    workgroupBarrier();
{% endif %}
    if (last_row < {{ elements.number("lanes") }}) {
{% call(b) for_butterflies(last, "last_worker") %}
{% for c in range(last) %}
    {
    let k = j + {{ c * span }}u;
{% if HALF_TARGET | default(0) %}
    store_half(v{{ b * last + c }}, exchange[place(last_lane, select({{ LENGTH }}u - k, 0u, k == 0u))], stored + k * stored_step, k);
{% else %}
    store(v{{ b * last + c }}, stored + k * stored_step, stored_position + k * {{ elements.number("target_element") }}, last_row * k);
{% endif %}
    }
{% endfor %}
{% endcall %}
    }
}
