{#- Tiles of attention's operands in workgroup memory, as vectors of four features. Import it `with context`:

  - Rows of a tile are PITCH vectors apart. Vector c of row r lies at c ^ (r & 7) (XOR swizzle), so that neither neighbouring rows nor
    neighbouring vectors share banks.
  - A workgroup is LANES invocations across by DOWN = GROUP / LANES down (see lib/group_reduce.wgsl). Invocation (lane_group, lane_id)
    computes rows lane_group + i * DOWN and columns lane_id + j * LANES of a tile.
  - Heads are numbered over AXES merged axes. `strides(name)` are parameters for an operand, `head_offset(name)` is where head `head`
    begins. -#}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(8) %}
{% set DOWN = GROUP // LANES %}
{% set AXES = AXES | default(2) %}
{% set DTYPE = DTYPE | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% set CAUSAL = CAUSAL | default(false) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% set TAIL = TAIL | default(false) %}

{% macro pitch(quads) %}{{ (quads + 7) // 8 * 8 }}{% endmacro %}

{% macro lengths() %}t: u32, s: u32, d: u32, e: u32, scale: f32, heads: u32, {% for a in range(1, AXES) %}batch{{ a }}: u32, {% endfor %}{% endmacro %}
{% macro strides(name) %}{% for a in range(AXES) %}{{ name }}_batch{{ a }}: u32, {% endfor %}{{ name }}_row: u32, {% endmacro %}
{% macro mask_members() %}{% if MASK_DTYPE %}{{ strides("mask") }}mask_column: u32, {% endif %}{% endmacro %}

{% macro head_index() %}
{% if AXES == 1 %}
    let i0 = head;
{% elif AXES == 2 %}
    let i0 = head / p.batch1;
    let i1 = head % p.batch1;
{% else %}
    let i0 = head / p.batch2 / p.batch1;
    let i1 = head / p.batch2 % p.batch1;
    let i2 = head % p.batch2;
{% endif %}
{% endmacro %}
{% macro head_offset(name) %}p.o_{{ name }}{% for a in range(AXES) %} + i{{ a }} * p.{{ name }}_batch{{ a }}{% endfor %}{% endmacro %}

{#- Loads four features of a row, beginning at `column`, with zeros past `length` if the last vector is partial. -#}
{% macro reader(name) %}
fn {{ name }}_vector(row: u32, column: u32, length: u32) -> vec4<f32> {
{% if TAIL %}
    let columns = vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u);
    let at = vec4<u32>(row) + min(columns, vec4<u32>(length - 1u));
    return select(vec4<f32>(), vec4<f32>({{ name }}_at(at.x), {{ name }}_at(at.y), {{ name }}_at(at.z), {{ name }}_at(at.w)), columns < vec4<u32>(length));
{% else %}
    return {{ name }}_at4(row + column);
{% endif %}
}
{% endmacro %}

{#- Loads `rows` rows of `quads` vectors from row `first` on into the registers PREFIXi; rows past `limit` repeat the last one, or are
    zeros. -#}
{% macro load_tile(declare, prefix, name, base, first, limit, rows, quads, length, zeros=false) %}
{% for i in range((rows * quads + GROUP - 1) // GROUP) %}
{% set at = "(local_id + " ~ i * GROUP ~ "u)" %}
{% set row = first ~ " + " ~ at ~ " / " ~ quads ~ "u" %}
{% set value = name ~ "_vector(" ~ base ~ " + min(" ~ row ~ ", " ~ limit ~ " - 1u) * p." ~ name ~ "_row, " ~ at ~ " % " ~ quads ~ "u * 4u, " ~ length ~ ")" %}
{% set value = "select(vec4<f32>(), " ~ value ~ ", " ~ row ~ " < " ~ limit ~ ")" if zeros else value %}
    {{ declare }}{{ " " if declare }}{{ prefix }}{{ i }} = {{ value }};
{% endfor %}
{% endmacro %}

{#- Stores what `load_tile` loaded into the region of workgroup memory that begins at vector `region`. -#}
{% macro store_tile(prefix, region, rows, quads, pitch) %}
{% for i in range((rows * quads + GROUP - 1) // GROUP) %}
    {{ "if (local_id < " ~ (rows * quads - i * GROUP) ~ "u) " if (i + 1) * GROUP > rows * quads }}{
        let row = (local_id + {{ i * GROUP }}u) / {{ quads }}u;
        tile[{{ region }}u + row * {{ pitch }}u + (((local_id + {{ i * GROUP }}u) % {{ quads }}u) ^ (row & 7u))] = {{ prefix }}{{ i }};
    }
{% endfor %}
{% endmacro %}

{#- Swizzled offsets of vector `c` of the rows `first` + i * step: NAMEk serves every i that is k modulo their number. -#}
{% macro swizzled_offsets(name, region, first, step, pitch) %}
{% for k in range([8 // step, 1] | max) %}
        let {{ name }}{{ k }} = {{ region }}u + {{ first }} * {{ pitch }}u + (c ^ (({{ first }} + {{ k * step }}u) & 7u));
{% endfor %}
{% endmacro %}
{% macro row_offset(name, i, step, pitch) %}{{ name }}{{ i % ([8 // step, 1] | max) }} + {{ i * step * pitch }}u{% endmacro %}

{#- SUM_i_j += dot product of row lane_group + i * DOWN of one region and row lane_id + j * LANES of another, over `quads` vectors. -#}
{% macro multiply(sum, left, right, rows, columns, quads, pitch) %}
    for (var c = 0u; c < {{ quads }}u; c++) {
{{ swizzled_offsets("left", left, "lane_group", DOWN, pitch) }}
{{ swizzled_offsets("right", right, "lane_id", LANES, pitch) }}
{% for j in range(columns) %}
        let y{{ j }} = tile[{{ row_offset("right", j, LANES, pitch) }}];
{% endfor %}
{% for i in range(rows) %}
        let x{{ i }} = tile[{{ row_offset("left", i, DOWN, pitch) }}];
{% for j in range(columns) %}
        {{ sum }}_{{ i }}_{{ j }} = {{ sum }}_{{ i }}_{{ j }} + x{{ i }}.x * y{{ j }}.x + x{{ i }}.y * y{{ j }}.y + x{{ i }}.z * y{{ j }}.z + x{{ i }}.w * y{{ j }}.w;
{% endfor %}
{% endfor %}
    }
{% endmacro %}

{#- Adds to SUM_i_j, which is vector lane_id + j * LANES of row lane_group + i * DOWN, the rows of the region `right` weighted by the
    `terms` weights of this row in the region `weights`. -#}
{% macro weighted_sum(sum, weights, right, rows, vectors, terms, weights_pitch, pitch) %}
    for (var c = 0u; c < {{ terms // 4 }}u; c++) {
{{ swizzled_offsets("weights", weights, "lane_group", DOWN, weights_pitch) }}
{% for i in range(rows) %}
        let x{{ i }} = tile[{{ row_offset("weights", i, DOWN, weights_pitch) }}];
{% endfor %}
{% for j in range(vectors) %}
{% for u in range(4) %}
        let y{{ j }}_{{ u }} = tile[{{ right }}u + (c * 4u + {{ u }}u) * {{ pitch }}u + ((lane_id + {{ j * LANES }}u) ^ ((c * 4u + {{ u }}u) & 7u))];
{% endfor %}
{% for i in range(rows) %}
        {{ sum }}_{{ i }}_{{ j }} = {{ sum }}_{{ i }}_{{ j }} + x{{ i }}.x * y{{ j }}_0 + x{{ i }}.y * y{{ j }}_1 + x{{ i }}.z * y{{ j }}_2 + x{{ i }}.w * y{{ j }}_3;
{% endfor %}
{% endfor %}
    }
{% endmacro %}

{#- Stores the scalars VALUE_i_j, of row lane_group + i * DOWN and column lane_id + j * LANES, as weights for `weighted_sum`. -#}
{% macro store_weights(value, region, rows, columns, pitch) %}
{% for i in range(rows) %}
{% for j in range(columns) %}
    tile[{{ region }}u + (lane_group + {{ i * DOWN }}u) * {{ pitch }}u + (((lane_id + {{ j * LANES }}u) / 4u) ^ ((lane_group + {{ i * DOWN }}u) & 7u))][lane_id % 4u] = {{ value }}_{{ i }}_{{ j }};
{% endfor %}
{% endfor %}
{% endmacro %}

{#- The score of `query` and `key` from their product: scaled and masked; minus infinity if the key is not visible. -#}
{% macro score_function() %}
fn score(product: f32, query: u32, key: u32{{ ", mask_base: u32" if MASK_DTYPE }}) -> f32 {
    var visible = query < p.t && key < p.s;
    var value = product * p.scale;
{% if CAUSAL %}
    visible = visible && key + p.t <= query + p.s;
{% endif %}
{% if MASK_DTYPE %}
    let mask_index = mask_base + min(query, p.t - 1u) * p.mask_row + min(key, p.s - 1u) * p.mask_column;
{% if MASK_DTYPE == "bool_" %}
    visible = visible && mask_at(mask_index) != 0u;
{% else %}
    value += mask_at(mask_index);
{% endif %}
{% endif %}
    return select(-infinity(), value, visible);
}
// The shift of scores before their exponential: the maximum, or 0 if all scores are minus infinity.
fn shift_of(maximum: f32) -> f32 { return select(maximum, 0.0f, bitcast<u32>(maximum) == 0xff800000u); }
{% endmacro %}

{#- Stores the logsumexp of a query in two parts, the largest score and the logarithm of the sum relative to it: adding them would round the
    logarithm away where a mask makes the score large. Both are 0 for a query without visible keys. -#}
{% macro store_logsumexp(index, maximum, total) -%}
let lse_index = p.o_lse + 2u * ({{ index }});
        lse_set(lse_index, shift_of({{ maximum }}));
        lse_set(lse_index + 1u, select(log_f32({{ total }}), 0.0f, {{ total }} == 0.0f));
{%- endmacro %}

{#- Stores a vector at `column` of a row of `length` elements that begins at `row`, as far as it is in range; `complete` says that
    all of it is. -#}
{% macro store4(name, row, value, column, length, complete=false) %}
{% if complete %}
            {{ name }}_set4({{ row }} + {{ column }}, {{ value }});
{% elif WIDTH == 4 and not TAIL %}
            if ({{ column }} < {{ length }}) { {{ name }}_set4({{ row }} + {{ column }}, {{ value }}); }
{% else %}
            {
                let vector = {{ value }};
{% for k in range(4) %}
                if ({{ column }} + {{ k }}u < {{ length }}) { {{ name }}_set({{ row }} + {{ column }} + {{ k }}u, vector.{{ "xyzw"[k] }}); }
{% endfor %}
            }
{% endif %}
{% endmacro %}

{#- Four rows of the operand `name` from row `first` on, for kernels without tiles. On CPUs a load costs as much as many multiply-adds,
    so each invocation loads one of the four rows if subgroups can exchange them. `four_row_offsets` locates the rows,
    `load_four(prefix, ...)` loads vector c of them, and `row_of_four(prefix, c, u)` is that of row u. -#}
{% set BROADCAST = SUBGROUPS | default(false) %}
{% macro four_builtins() %}{{ "@builtin(subgroup_invocation_id) subgroup_lane: u32," if BROADCAST }}{% endmacro %}
{% macro four_row_offsets(name, first, limit) %}
{% for u in range(1 if BROADCAST else 4) %}
        let {{ name }}_row{{ u }} = {{ name }}_base + min({{ first }} + {{ "(subgroup_lane & 3u)" if BROADCAST else u ~ "u" }}, {{ limit }} - 1u) * p.{{ name }}_row;
{% endfor %}
{% endmacro %}
{% macro load_four(prefix, name, c, length) %}
{% for u in range(1 if BROADCAST else 4) %}
        let {{ prefix }}_{{ c }}_{{ u }} = {{ name }}_vector({{ name }}_row{{ u }}, {{ 4 * c }}u, {{ length }});
{% endfor %}
{% endmacro %}
{% macro row_of_four(prefix, c, u) %}{{ "subgroupBroadcast(" ~ prefix ~ "_" ~ c ~ "_0, " ~ u ~ "u)" if BROADCAST else prefix ~ "_" ~ c ~ "_" ~ u }}{% endmacro %}

{#- Stores the vectors VALUE_i_j times FACTOR_i, as far as rows and columns are in range. -#}
{% macro store_rows(name, value, factor, first, limit, length, rows, vectors) %}
{% for i in range(rows) %}
    if ({{ first }} + lane_group + {{ i * DOWN }}u < {{ limit }}) {
        let row = p.o_{{ name }} + (head * {{ limit }} + {{ first }} + lane_group + {{ i * DOWN }}u) * {{ length }};
{% for j in range(vectors) %}
        {
            let column = (lane_id + {{ j * LANES }}u) * 4u;
{{ store4(name, "row", value ~ "_" ~ i ~ "_" ~ j ~ (" * " ~ factor ~ "_" ~ i if factor else ""), "column", length) }}
        }
{% endfor %}
    }
{% endfor %}
{% endmacro %}
