{#- Layout of dtypes in storage buffers, and how to load and store elements. Import it `with context`:

      import "lib/storage.wgsl" as storage with context

  - `enable()` comes first in every kernel file.
  - `input(binding, name, dtype, lanes)` declares a read-only buffer and the functions `NAME_at(i)` for element i and `NAME_at4(i)` for
    four elements, the first at i. With lanes = 4 the latter is one load, and i must be a multiple of 4. With lanes = 8, for floats of
    16 bits in words, `NAME_at8(i)` is one load of eight, where i is a multiple of 8.
  - `output(binding, name, dtype, lanes)` declares a write-only buffer, `NAME_set(i, value)` and `NAME_set4(i, values)`.
  - `inout(...)` declares both.
  - SHARED_BINDINGS maps the names of inputs to outputs of the same type, in the same buffer: they have no binding of their own. WebGPU allows one
    binding of a buffer that is written.
  - `scratch(binding, name, type, access)` declares workspace of plain WGSL elements.
  - `parameters(members)` declares the parameter struct `p` of u32, i32 and f32. `o_NAME` is the offset of a buffer in elements; a 64-bit
    integer is `NAME_low: u32, NAME_high: u32`.
  - `register(dtype)` is the type in which elements are computed: f32, i32, u32, i64 or u64; a bool is a u32 of 0 or 1.
  - `main(size, builtins)` opens the kernel: `group_id` is the linear index of the workgroup, `local_id` that of the invocation in it;
    `builtins` declares more arguments.

  Elements smaller than a word share words. A store changes its own bytes with atomic operations, because other invocations may store
  the neighbours. -#}
{% set REGISTERS = {
  "float32": "f32", "float16": "f32", "bfloat16": "f32", "int8": "i32", "int16": "i32", "int32": "i32", "int64": "i64",
  "uint8": "u32", "uint16": "u32", "uint32": "u32", "uint64": "u64", "bool_": "u32"} %}
{% set BITS = {"float16": 16, "bfloat16": 16, "int8": 8, "int16": 16, "uint8": 8, "uint16": 16, "bool_": 8} %}

{% macro register(dtype) %}{{ REGISTERS[dtype] }}{% endmacro %}

{% macro enable() %}
{% if F16 | default(false) %}enable f16;{% endif %}
{% endmacro %}

{% macro native16(dtype) %}{{ "yes" if dtype == "float16" and F16 | default(false) }}{% endmacro %}
{% macro packed(dtype) %}{{ "yes" if dtype in BITS and not native16(dtype) }}{% endmacro %}

{% macro element(dtype, lanes, atomic) %}
{%- if packed(dtype) -%}
  {{ "atomic<u32>" if atomic else "vec4<u32>" if lanes == 8 else "vec2<u32>" if lanes == 4 and BITS[dtype] == 16 else "u32" }}
{%- else -%}
  {%- set scalar = "f16" if dtype == "float16" else REGISTERS[dtype] -%}
  {{ "vec4<" ~ scalar ~ ">" if lanes == 4 else scalar }}
{%- endif -%}
{% endmacro %}

{% macro decoded(dtype, word) %}
{%- if dtype == "bfloat16" -%} bitcast<f32>(({{ word }}) << 16u)
{%- elif dtype == "float16" -%} unpack2x16float(({{ word }}) & 0xffffu).x
{%- elif dtype in ("int8", "int16") -%} (bitcast<i32>(({{ word }}) << {{ 32 - BITS[dtype] }}u) >> {{ 32 - BITS[dtype] }}u)
{%- else -%} (({{ word }}) & {{ "0xffu" if BITS[dtype] == 8 else "0xffffu" }})
{%- endif -%}
{% endmacro %}

{% macro encoded(dtype, value) %}
{%- if dtype == "bfloat16" -%} bfloat16_bits({{ value }})
{%- elif dtype == "float16" -%} float16_bits({{ value }})
{%- else -%} (bitcast<u32>({{ value }}) & {{ "0xffu" if BITS[dtype] == 8 else "0xffffu" }})
{%- endif -%}
{% endmacro %}

{% macro reader(name, dtype, lanes, atomic=false) %}
{% set T = REGISTERS[dtype] %}
{% set memory = (SHARED_BINDINGS | default({})).get(name, name) %}
{% if packed(dtype) %}
{% set per_word = 32 // BITS[dtype] %}
{% set wide = lanes == 4 and per_word == 2 and not atomic %}
fn {{ name }}_word(i: u32) -> u32 {
{% if atomic %}
    return atomicLoad(&{{ memory }}[i]);
{% elif lanes == 8 %}
    return {{ memory }}[i >> 2u][i & 3u];
{% elif wide %}
    return {{ memory }}[i >> 1u][i & 1u];
{% else %}
    return {{ memory }}[i];
{% endif %}
}
fn {{ name }}_at(i: u32) -> {{ T }} {
    let word = {{ name }}_word(i / {{ per_word }}u) >> ((i % {{ per_word }}u) * {{ BITS[dtype] }}u);
    return {{ decoded(dtype, "word") }};
}
fn {{ name }}_at4(i: u32) -> vec4<{{ T }}> {
{% if lanes == 4 and per_word == 4 %}
    let w = {{ name }}_word(i / 4u);
    return vec4<{{ T }}>({{ decoded(dtype, "w") }}, {{ decoded(dtype, "w >> 8u") }}, {{ decoded(dtype, "w >> 16u") }}, {{ decoded(dtype, "w >> 24u") }});
{% elif wide %}
    let w = {{ memory }}[i / 4u];
    return vec4<{{ T }}>({{ decoded(dtype, "w.x") }}, {{ decoded(dtype, "w.x >> 16u") }}, {{ decoded(dtype, "w.y") }}, {{ decoded(dtype, "w.y >> 16u") }});
{% else %}
    return vec4<{{ T }}>({{ name }}_at(i), {{ name }}_at(i + 1u), {{ name }}_at(i + 2u), {{ name }}_at(i + 3u));
{% endif %}
}
{% if lanes == 8 %}
fn {{ name }}_at8(i: u32) -> mat2x4<f32> {
    let w = {{ memory }}[i / 8u];
    return mat2x4<f32>({% for c in "xyzw" %}{{ ", " if not loop.first }}{{ decoded(dtype, "w." ~ c) }}, {{ decoded(dtype, "w." ~ c ~ " >> 16u") }}{% endfor %});
}
{% endif %}
{% elif lanes == 4 %}
fn {{ name }}_at(i: u32) -> {{ T }} { return {{ T }}({{ memory }}[i >> 2u][i & 3u]); }
fn {{ name }}_at4(i: u32) -> vec4<{{ T }}> { return vec4<{{ T }}>({{ memory }}[i >> 2u]); }
{% else %}
fn {{ name }}_at(i: u32) -> {{ T }} { return {{ T }}({{ memory }}[i]); }
fn {{ name }}_at4(i: u32) -> vec4<{{ T }}> {
    return vec4<{{ T }}>({{ name }}_at(i), {{ name }}_at(i + 1u), {{ name }}_at(i + 2u), {{ name }}_at(i + 3u));
}
{% endif %}
{% endmacro %}

{% macro writer(name, dtype, lanes) %}
{% set T = REGISTERS[dtype] %}
{% if packed(dtype) %}
{% set per_word = 32 // BITS[dtype] %}
{% set mask = "0xffu" if per_word == 4 else "0xffffu" %}
fn {{ name }}_set(i: u32, value: {{ T }}) {
    let shift = (i % {{ per_word }}u) * {{ BITS[dtype] }}u;
    atomicAnd(&{{ name }}[i / {{ per_word }}u], ~({{ mask }} << shift));
    atomicOr(&{{ name }}[i / {{ per_word }}u], {{ encoded(dtype, "value") }} << shift);
}
fn {{ name }}_set4(i: u32, v: vec4<{{ T }}>) {
{% if lanes == 4 and per_word == 4 %}
    atomicStore(&{{ name }}[i / 4u], {{ encoded(dtype, "v.x") }} | ({{ encoded(dtype, "v.y") }} << 8u) | ({{ encoded(dtype, "v.z") }} << 16u) | ({{ encoded(dtype, "v.w") }} << 24u));
{% elif lanes == 4 %}
    atomicStore(&{{ name }}[i / 2u], {{ encoded(dtype, "v.x") }} | ({{ encoded(dtype, "v.y") }} << 16u));
    atomicStore(&{{ name }}[i / 2u + 1u], {{ encoded(dtype, "v.z") }} | ({{ encoded(dtype, "v.w") }} << 16u));
{% else %}
    {{ name }}_set(i, v.x); {{ name }}_set(i + 1u, v.y); {{ name }}_set(i + 2u, v.z); {{ name }}_set(i + 3u, v.w);
{% endif %}
}
{% else %}
{% set stored = "f16" if dtype == "float16" else T %}
{% if lanes == 4 %}
fn {{ name }}_set(i: u32, value: {{ T }}) { {{ name }}[i >> 2u][i & 3u] = {{ stored }}(value); }
fn {{ name }}_set4(i: u32, v: vec4<{{ T }}>) { {{ name }}[i >> 2u] = vec4<{{ stored }}>(v); }
{% else %}
fn {{ name }}_set(i: u32, value: {{ T }}) { {{ name }}[i] = {{ stored }}(value); }
fn {{ name }}_set4(i: u32, v: vec4<{{ T }}>) {
    {{ name }}_set(i, v.x); {{ name }}_set(i + 1u, v.y); {{ name }}_set(i + 2u, v.z); {{ name }}_set(i + 3u, v.w);
}
{% endif %}
{% endif %}
{% endmacro %}

{% macro input(binding, name, dtype, lanes=1) %}
{% if name not in SHARED_BINDINGS | default({}) %}
@group(0) @binding({{ binding }}) var<storage, {{ ACCESS | default("read") }}> {{ name }}: array<{{ element(dtype, lanes, false) }}>;
{% endif %}
{{ reader(name, dtype, lanes) }}
{% endmacro %}

{% macro output(binding, name, dtype, lanes=1) %}
@group(0) @binding({{ binding }}) var<storage, read_write> {{ name }}: array<{{ element(dtype, lanes, true) }}>;
{{ writer(name, dtype, lanes) }}
{% endmacro %}

{% macro inout(binding, name, dtype, lanes=1) %}
@group(0) @binding({{ binding }}) var<storage, read_write> {{ name }}: array<{{ element(dtype, lanes, true) }}>;
{{ reader(name, dtype, lanes, true) }}
{{ writer(name, dtype, lanes) }}
{% endmacro %}

{% macro scratch(binding, name, type, access="read_write") %}
@group(0) @binding({{ binding }}) var<storage, {{ access if access == "read_write" else ACCESS | default("read") }}> {{ name }}: array<{{ type }}>;
{% endmacro %}

{% macro parameters(members) %}
struct Parameters { {{ members }} }
{% if IMMEDIATES | default(false) %}
var<immediate> p: Parameters;
{% else %}
@group(1) @binding(0) var<uniform> p: Parameters;
{% endif %}
{% endmacro %}

{% macro main(size, builtins="") %}
@compute @workgroup_size({{ size }})
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) local_id: u32, {{ builtins }}
) {
    let group_id = workgroup.y * grid.x + workgroup.x;
{% endmacro %}

{#- Round to nearest, ties to even, on the bits; NaN stays NaN. Used only where 16-bit floats are stored in words. -#}
{% macro half_functions() %}
fn bfloat16_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
fn float16_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    // Normal results keep 10 of 23 fraction bits; subnormal ones are multiples of 2^-24.
    let normal = (size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u;
    let small = u32(round(bitcast<f32>(size) * 16777216.0));
    let finite = select(select(normal, small, size < 0x38800000u), 0x7c00u, size >= 0x477ff000u);
    return sign | select(finite, 0x7e00u, size > 0x7f800000u);
}
{% endmacro %}
