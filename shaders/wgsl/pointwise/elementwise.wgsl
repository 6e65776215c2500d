{#- One elementwise op, or a fused group of them, over operands of any strides.

  The iteration space is rows x inner elements; an invocation computes WIDTH neighbours of one row. OPERANDS lists the tensors with their
  name, dtype, role (input or output), access along the inner axis (contiguous, strided or broadcast) and lanes per load. NUMBERS declares
  scalar parameters, PREPARE loads them into registers, and COMPUTE evaluates one element, from registers named like the inputs to the
  registers listed in RESULTS. The defaults add two contiguous arrays of floats. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set WIDTH = WIDTH | default(4) %}
{% set AXES = AXES | default(1) %}
{% set GROUP = GROUP | default(64) %}
{% set OPERANDS = OPERANDS | default([
  {"name": "a0", "dtype": "float32", "role": "input", "access": "contiguous", "lanes": 4},
  {"name": "a1", "dtype": "float32", "role": "input", "access": "contiguous", "lanes": 4},
  {"name": "a2", "dtype": "float32", "role": "output", "access": "contiguous", "lanes": 4}]) %}
{% set NUMBERS = NUMBERS | default("") %}
{% set PREPARE = PREPARE | default([]) %}
{% set COMPUTE = COMPUTE | default(["let r2 = r_a0 + r_a1;"]) %}
{% set RESULTS = RESULTS | default(["r2"]) %}
{% set INTEGER_LIBRARIES = INTEGER_LIBRARIES | default([]) %}
{% set inputs = OPERANDS | selectattr("role", "equalto", "input") | list %}
{% set outputs = OPERANDS | selectattr("role", "equalto", "output") | list %}
{{ storage.enable() }}
{% include "lib/float_functions.wgsl" %}
{% for T in INTEGER_LIBRARIES %}{% include "lib/integer_functions.wgsl" %}{% endfor %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{% for o in OPERANDS %}
{{ storage.input(loop.index0, o.name, o.dtype, o.lanes) if o.role == "input" else storage.output(loop.index0, o.name, o.dtype, o.lanes) }}
{% endfor %}
{% set members %}
{% for o in OPERANDS %}o_{{ o.name }}: u32, {% for a in range(AXES - 1) %}s_{{ o.name }}_{{ a }}: u32, {% endfor %}{% if o.access == "strided" %}t_{{ o.name }}: u32, {% endif %}{% endfor %}
{% for a in range(1, AXES - 1) %}n{{ a }}: u32, {% endfor %}inner: u32, chunks: u32, items: u32, {{ NUMBERS }}
{% endset %}
{{ storage.parameters(members) }}
struct Results { {% for o in outputs %}{{ o.name }}: {{ storage.register(o.dtype) }}, {% endfor %} }
fn compute({% for o in inputs %}r_{{ o.name }}: {{ storage.register(o.dtype) }}, {% endfor %}) -> Results {
{% for line in PREPARE %}    {{ line }}
{% endfor %}
{% for line in COMPUTE %}    {{ line }}
{% endfor %}
    return Results({{ RESULTS | join(", ") }});
}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.items) { return; }
{% if AXES == 1 %}
    let column = item * {{ WIDTH }}u;
{% else %}
    var row = item / p.chunks;
    let column = (item % p.chunks) * {{ WIDTH }}u;
{% for a in range(AXES - 2, 0, -1) %}
    let c{{ a }} = row % p.n{{ a }};
    row = row / p.n{{ a }};
{% endfor %}
    let c0 = row;
{% endif %}
{% for o in OPERANDS %}
    let q_{{ o.name }} = p.o_{{ o.name }}{% for a in range(AXES - 1) %} + c{{ a }} * p.s_{{ o.name }}_{{ a }}{% endfor %}{{ " + column" if o.access == "contiguous" }}{{ " + column * p.t_" ~ o.name if o.access == "strided" }};
{% endfor %}
{% if WIDTH == 1 %}
    let result = compute({% for o in inputs %}{{ o.name }}_at(q_{{ o.name }}), {% endfor %});
{% for o in outputs %}
    {{ o.name }}_set(q_{{ o.name }}, result.{{ o.name }});
{% endfor %}
{% else %}
    // Elements past the end of a row may be read, but are not written.
{% for o in inputs %}
{% set T = storage.register(o.dtype) %}
{% if o.access == "broadcast" %}
    let v_{{ o.name }} = vec4<{{ T }}>({{ o.name }}_at(q_{{ o.name }}));
{% elif o.access == "contiguous" %}
    let v_{{ o.name }} = {{ o.name }}_at4(q_{{ o.name }});
{% else %}
    let v_{{ o.name }} = vec4<{{ T }}>({% for k in range(4) %}{{ o.name }}_at(q_{{ o.name }} + min({{ k }}u, p.inner - 1u - column) * p.t_{{ o.name }}){{ ", " if k < 3 }}{% endfor %});
{% endif %}
{% endfor %}
{% for k in range(4) %}
    let result{{ k }} = compute({% for o in inputs %}v_{{ o.name }}.{{ "xyzw"[k] }}, {% endfor %});
{% endfor %}
    if (column + 4u <= p.inner) {
{% for o in outputs %}
        {{ o.name }}_set4(q_{{ o.name }}, vec4<{{ storage.register(o.dtype) }}>(result0.{{ o.name }}, result1.{{ o.name }}, result2.{{ o.name }}, result3.{{ o.name }}));
{% endfor %}
    } else {
{% for o in outputs %}
{% for k in range(3) %}
        if (column + {{ k }}u < p.inner) { {{ o.name }}_set(q_{{ o.name }} + {{ k }}u, result{{ k }}.{{ o.name }}); }
{% endfor %}
{% endfor %}
    }
{% endif %}
}
