{#- Prefix sums, products or extrema of rows: LANES invocations scan one split of a row, a tile of LANES * TERMS elements at a time, and carry
    the total of the tiles before. In a tile every invocation scans its TERMS adjacent elements, then the lanes scan their totals (Hillis
    and Steele, 1986).

  Rows and strides as in lib/rows.wgsl. Each of `splits` splits of a row has `split_length` elements, a multiple of the tile. With TOTALS,
  the kernel computes the total of each split; with SPLIT, a scan starts from the totals of the splits before its own. MAP converts an
  element `v` to the accumulator T, RESULT a sum `total` to an element of `out`. Totals of floats are added in blocks, so that long
  rows are as exact as short ones. Compensated sums would not be: drivers simplify a + b - a to b. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("float32") %}
{% set T = T | default("f32") %}
{% set MAP = MAP | default("v") %}
{% set RESULT = RESULT | default("total") %}
{% set OPERATION = OPERATION | default("sum") %}
{% set TERMS = TERMS | default(4) %}
{% set WIDTH = WIDTH | default(1) %}
{% set TOTALS = TOTALS | default(false) %}
{% set SPLIT = SPLIT | default(false) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/combine.wgsl" as operations with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% set TILE = LANES * TERMS %}
{% set BLOCKED = OPERATION == "sum" and T == "f32" %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{% if not TOTALS %}
{{ storage.output(1, "out", OUT_DTYPE, WIDTH) }}
{% endif %}
{% if TOTALS or SPLIT %}
{{ storage.scratch(1 if TOTALS else 2, "totals", T, "read_write" if TOTALS else "read") }}
{% endif %}
{% set OPERANDS = ["x"] if TOTALS else ["x", "out"] %}
{{ storage.parameters("o_x: u32, " ~ ("" if TOTALS else "o_out: u32, ") ~ rows.members(OPERANDS) ~ "splits: u32, split_length: u32") }}
{{ operations.declarations(OPERATION, T, storage.register(DTYPE), MAP, 1) }}
{% if BLOCKED %}
// The totals of at most 8 tiles, of at most 8 blocks of 8 tiles, and of all before; w counts tiles.
alias Carry = vec4<f32>;
fn extended(carry: Carry, v: f32) -> Carry {
    let count = carry.w + 1.0f;
    if (u32(count) % 8u != 0u) { return Carry(carry.x + v, carry.yz, count); }
    let block = carry.y + (carry.x + v);
    if (u32(count) % 64u != 0u) { return Carry(0.0f, block, carry.z, count); }
    return Carry(0.0f, 0.0f, carry.z + block, count);
}
fn continued(carry: Carry, v: f32) -> f32 { return carry.z + (carry.y + (carry.x + v)); }
{% set START = "Carry()" %}
{% else %}
alias Carry = {{ T }};
fn extended(carry: Carry, v: {{ T }}) -> Carry { return combine(carry, v); }
fn continued(carry: Carry, v: {{ T }}) -> {{ T }} { return combine(carry, v); }
{% set START = "identity" %}
{% endif %}
{% if LANES > 1 %}
var<workgroup> scanned: array<{{ T }}, {{ GROUP }}>;
// Replaces the element of each lane by the prefix up to it, which is also the result.
fn scan_lanes(mine: {{ T }}, local_id: u32, lane: u32) -> {{ T }} {
    var prefix = mine;
    workgroupBarrier();
    scanned[local_id] = prefix;
{% for round in range(12) %}
{% set reach = 2 ** round %}
{% if reach < LANES %}
    workgroupBarrier();
    let before{{ round }} = scanned[local_id - min({{ reach }}u, lane)];
    if (lane >= {{ reach }}u) { prefix = combine(before{{ round }}, prefix); }
    workgroupBarrier();
    scanned[local_id] = prefix;
{% endif %}
{% endfor %}
    workgroupBarrier();
    return prefix;
}
{% endif %}
{#- The combination over the lanes of `mine`, as `all`, and over the lanes before as `before`. -#}
{% macro over_lanes(mine, all, before) %}
{% if LANES > 1 %}
    scan_lanes({{ mine }}, local_id, lane);
    let {{ before }} = select(identity, scanned[local_id - min(1u, lane)], lane > 0u);
    let {{ all }} = scanned[local_id - lane + {{ LANES - 1 }}u];
{% else %}
    let {{ before }} = identity;
    let {{ all }} = {{ mine }};
{% endif %}
{% endmacro %}
{{ storage.main(GROUP) }}
    let identity = {{ operations.identity(OPERATION, T) }};
    let number = group_id * {{ GROUP // LANES }}u + local_id / {{ LANES }}u;
    let lane = local_id % {{ LANES }}u;
    // Surplus lane groups stay active, because the whole workgroup must reach the barriers.
    let exists = number < p.rows * p.splits;
    let task = min(number, p.rows * p.splits - 1u);
    let row = task % p.rows;
    let split = task / p.rows;
{% for n in OPERANDS %}
    let at_{{ n }} = p.o_{{ n }} + row / p.rows2 / p.rows1 * p.{{ n }}_0 + row / p.rows2 % p.rows1 * p.{{ n }}_1 + row % p.rows2 * p.{{ n }}_2;
{% endfor %}
    let begin = split * p.split_length;
    let end = min(begin + p.split_length, p.length);
    var carry = {{ START }};
{% if SPLIT and not TOTALS %}
    for (var s = lane; s < split; s += {{ LANES }}u) { carry = extended(carry, totals[s * p.rows + row]); }
{% if LANES > 1 %}
    {
{{ over_lanes("continued(carry, identity)", "all", "before") }}
        carry = extended({{ START }}, all);
    }
{% endif %}
{% endif %}
{% if TOTALS %}
    var total = {{ START }};
{% endif %}
    for (var tile = 0u; tile < p.split_length; tile += {{ TILE }}u) {
        let first = begin + tile + lane * {{ TERMS }}u;
{% if WIDTH == 4 %}
{% for q in range(0, TERMS, 4) %}
        var quad{{ q }} = vec4<{{ storage.register(DTYPE) }}>();
        if (first + {{ q }}u < end) { quad{{ q }} = x_at4(at_x + first + {{ q }}u); }
{% endfor %}
{% endif %}
{% for k in range(TERMS) %}
{% set element = "quad" ~ k // 4 * 4 ~ "." ~ "xyzw"[k % 4] if WIDTH == 4 else "x_at(at_x + (first + " ~ k ~ "u) * p.x_step)" %}
        var v{{ k }} = identity;
        if (first + {{ k }}u < end) { v{{ k }} = map_term({{ element }}); }
{% endfor %}
{% for k in range(1, TERMS) %}
        v{{ k }} = combine(v{{ k - 1 }}, v{{ k }});
{% endfor %}
{% if TOTALS %}
        total = extended(total, v{{ TERMS - 1 }});
{% else %}
{{ over_lanes("v" ~ (TERMS - 1), "all", "before") }}
{% for k in range(TERMS) %}
        let r{{ k }} = result(continued(carry, combine(before, v{{ k }})));
{% endfor %}
        if (exists) {
{% if WIDTH == 4 %}
{% for q in range(0, TERMS, 4) %}
            if (first + {{ q }}u < end) { out_set4(at_out + first + {{ q }}u, vec4<{{ storage.register(OUT_DTYPE) }}>(r{{ q }}, r{{ q + 1 }}, r{{ q + 2 }}, r{{ q + 3 }})); }
{% endfor %}
{% else %}
{% for k in range(TERMS) %}
            if (first + {{ k }}u < end) { out_set(at_out + (first + {{ k }}u) * p.out_step, r{{ k }}); }
{% endfor %}
{% endif %}
        }
        carry = extended(carry, all);
{% endif %}
    }
{% if TOTALS %}
{{ over_lanes("continued(total, identity)", "all", "before") }}
    if (lane == 0u && exists) { totals[split * p.rows + row] = all; }
{% endif %}
}
{% if not TOTALS %}
fn result(total: {{ T }}) -> {{ storage.register(OUT_DTYPE) }} { return {{ RESULT }}; }
{% endif %}
