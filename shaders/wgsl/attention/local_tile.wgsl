{#- Tiles of attention's operands in workgroup memory, as vectors of four features. Import it `with context`:

  - Rows of a tile are PITCH vectors apart. Vector c of row r lies at c ^ (r & 7), so that neither neighbouring rows nor neighbouring
    vectors fall on the same banks.
  - A group is LANES invocations across times GROUP / LANES down; `me` numbers them across and `team` down (see lib/group_reduce.wgsl). Invocation
    (team, me) works on rows team + i * DOWN and columns me + j * LANES of a tile.
  - Heads are numbered over AXES merged axes. `strides(name)` are the members for an operand, `start(name)` is where head `head` begins. -#}
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

{% macro head_numbers() %}
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
{% macro start(name) %}p.o_{{ name }}{% for a in range(AXES) %} + i{{ a }} * p.{{ name }}_batch{{ a }}{% endfor %}{% endmacro %}

{#- Four features from `column` on of a row, with zeros past `length` where the last vector is not whole. -#}
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

{#- Reads `rows` rows of `quads` vectors from row `first` on into the registers PREFIX_i; rows past `limit` repeat the last one, or are
    zeros. -#}
{% macro fetch(declare, prefix, name, base, first, limit, rows, quads, length, zeros=false) %}
{% for i in range((rows * quads + GROUP - 1) // GROUP) %}
{% set at = "(lane + " ~ i * GROUP ~ "u)" %}
{% set row = first ~ " + " ~ at ~ " / " ~ quads ~ "u" %}
{% set value = name ~ "_vector(" ~ base ~ " + min(" ~ row ~ ", " ~ limit ~ " - 1u) * p." ~ name ~ "_row, " ~ at ~ " % " ~ quads ~ "u * 4u, " ~ length ~ ")" %}
{% set value = "select(vec4<f32>(), " ~ value ~ ", " ~ row ~ " < " ~ limit ~ ")" if zeros else value %}
    {{ declare }}{{ " " if declare }}{{ prefix }}{{ i }} = {{ value }};
{% endfor %}
{% endmacro %}

{#- Puts what `fetch` read into the region of the tile memory that begins at vector `region`. -#}
{% macro keep(prefix, region, rows, quads, pitch) %}
{% for i in range((rows * quads + GROUP - 1) // GROUP) %}
    {{ "if (lane < " ~ (rows * quads - i * GROUP) ~ "u) " if (i + 1) * GROUP > rows * quads }}{
        let row = (lane + {{ i * GROUP }}u) / {{ quads }}u;
        tile[{{ region }}u + row * {{ pitch }}u + (((lane + {{ i * GROUP }}u) % {{ quads }}u) ^ (row & 7u))] = {{ prefix }}{{ i }};
    }
{% endfor %}
{% endmacro %}

{#- Where vector `c` of the rows `first` + i * step lies: NAMEk serves every i that is k modulo their number. -#}
{% macro rows_at(name, region, first, step, pitch) %}
{% for k in range([8 // step, 1] | max) %}
        let {{ name }}{{ k }} = {{ region }}u + {{ first }} * {{ pitch }}u + (c ^ (({{ first }} + {{ k * step }}u) & 7u));
{% endfor %}
{% endmacro %}
{% macro row(name, i, step, pitch) %}{{ name }}{{ i % ([8 // step, 1] | max) }} + {{ i * step * pitch }}u{% endmacro %}

{#- Adds to SUM_i_j the products of row team + i * DOWN of one region and row me + j * LANES of another, over `quads` vectors. -#}
{% macro multiply(sum, left, right, rows, columns, quads, pitch) %}
    for (var c = 0u; c < {{ quads }}u; c++) {
{{ rows_at("left", left, "team", DOWN, pitch) }}
{{ rows_at("right", right, "me", LANES, pitch) }}
{% for j in range(columns) %}
        let y{{ j }} = tile[{{ row("right", j, LANES, pitch) }}];
{% endfor %}
{% for i in range(rows) %}
        let x{{ i }} = tile[{{ row("left", i, DOWN, pitch) }}];
{% for j in range(columns) %}
        {{ sum }}_{{ i }}_{{ j }} = {{ sum }}_{{ i }}_{{ j }} + x{{ i }}.x * y{{ j }}.x + x{{ i }}.y * y{{ j }}.y + x{{ i }}.z * y{{ j }}.z + x{{ i }}.w * y{{ j }}.w;
{% endfor %}
{% endfor %}
    }
{% endmacro %}

{#- Adds to the vectors SUM_i_j, vector me + j * LANES of row team + i * DOWN, the products of the weights in one region, a row of `terms`
    per row, with the rows of another region. -#}
{% macro gather(sum, weights, right, rows, vectors, terms, weights_pitch, pitch) %}
    for (var c = 0u; c < {{ terms // 4 }}u; c++) {
{{ rows_at("weights", weights, "team", DOWN, weights_pitch) }}
{% for i in range(rows) %}
        let x{{ i }} = tile[{{ row("weights", i, DOWN, weights_pitch) }}];
{% endfor %}
{% for j in range(vectors) %}
{% for u in range(4) %}
        let y{{ j }}_{{ u }} = tile[{{ right }}u + (c * 4u + {{ u }}u) * {{ pitch }}u + ((me + {{ j * LANES }}u) ^ ((c * 4u + {{ u }}u) & 7u))];
{% endfor %}
{% for i in range(rows) %}
        {{ sum }}_{{ i }}_{{ j }} = {{ sum }}_{{ i }}_{{ j }} + x{{ i }}.x * y{{ j }}_0 + x{{ i }}.y * y{{ j }}_1 + x{{ i }}.z * y{{ j }}_2 + x{{ i }}.w * y{{ j }}_3;
{% endfor %}
{% endfor %}
    }
{% endmacro %}

{#- Puts the scalars VALUE_i_j, row team + i * DOWN and column me + j * LANES, where `gather` finds them as weights. -#}
{% macro spread(value, region, rows, columns, pitch) %}
{% for i in range(rows) %}
{% for j in range(columns) %}
    tile[{{ region }}u + (team + {{ i * DOWN }}u) * {{ pitch }}u + (((me + {{ j * LANES }}u) / 4u) ^ ((team + {{ i * DOWN }}u) & 7u))][me % 4u] = {{ value }}_{{ i }}_{{ j }};
{% endfor %}
{% endfor %}
{% endmacro %}

{#- The score of `query` and `key` from their product: scaled, and minus infinity where the key is not seen. -#}
{% macro score_function() %}
fn score(product: f32, query: u32, key: u32{{ ", mask_base: u32" if MASK_DTYPE }}) -> f32 {
    var seen = query < p.t && key < p.s;
    var value = product * p.scale;
{% if CAUSAL %}
    seen = seen && key + p.t <= query + p.s;
{% endif %}
{% if MASK_DTYPE %}
    let place = mask_base + min(query, p.t - 1u) * p.mask_row + min(key, p.s - 1u) * p.mask_column;
{% if MASK_DTYPE == "bool_" %}
    seen = seen && mask_at(place) != 0u;
{% else %}
    value += mask_at(place);
{% endif %}
{% endif %}
    return select(-infinity(), value, seen);
}
// What is taken from scores before their exponential: nothing where all of them are minus infinity.
fn shift_of(top: f32) -> f32 { return select(top, 0.0f, top < -3.0e38f); }
{% endmacro %}

{#- Stores the vector `value` from `column` on of a row of `length` that begins at `place`, as far as it exists; `complete` says that it
    does. -#}
{% macro put(name, place, value, column, length, complete=false) %}
{% if complete %}
            {{ name }}_set4({{ place }} + {{ column }}, {{ value }});
{% elif WIDTH == 4 and not TAIL %}
            if ({{ column }} < {{ length }}) { {{ name }}_set4({{ place }} + {{ column }}, {{ value }}); }
{% else %}
            {
                let made = {{ value }};
{% for k in range(4) %}
                if ({{ column }} + {{ k }}u < {{ length }}) { {{ name }}_set({{ place }} + {{ column }} + {{ k }}u, made.{{ "xyzw"[k] }}); }
{% endfor %}
            }
{% endif %}
{% endmacro %}

{#- Four rows from row `first` on of the operand `name`, for kernels that have no tiles. Because there a load costs as much as many
    multiplications, each invocation loads one of the four where there are subgroups to exchange them. `four_rows` finds the rows,
    `four(prefix, ...)` loads vector c of them, and `of_four(prefix, c, u)` is that of row u. -#}
{% set BROADCAST = SUBGROUPS | default(false) %}
{% macro four_builtins() %}{{ "@builtin(subgroup_invocation_id) subgroup_lane: u32," if BROADCAST }}{% endmacro %}
{% macro four_rows(name, first, limit) %}
{% for u in range(1 if BROADCAST else 4) %}
        let {{ name }}_row{{ u }} = {{ name }}_base + min({{ first }} + {{ "(subgroup_lane & 3u)" if BROADCAST else u ~ "u" }}, {{ limit }} - 1u) * p.{{ name }}_row;
{% endfor %}
{% endmacro %}
{% macro four(prefix, name, c, length) %}
{% for u in range(1 if BROADCAST else 4) %}
        let {{ prefix }}_{{ c }}_{{ u }} = {{ name }}_vector({{ name }}_row{{ u }}, {{ 4 * c }}u, {{ length }});
{% endfor %}
{% endmacro %}
{% macro of_four(prefix, c, u) %}{{ "subgroupBroadcast(" ~ prefix ~ "_" ~ c ~ "_0, " ~ u ~ "u)" if BROADCAST else prefix ~ "_" ~ c ~ "_" ~ u }}{% endmacro %}

{#- Writes the vectors VALUE_i_j times FACTOR_i as far as rows and columns exist. -#}
{% macro write(name, value, factor, first, limit, length, rows, vectors) %}
{% for i in range(rows) %}
    if ({{ first }} + team + {{ i * DOWN }}u < {{ limit }}) {
        let place = p.o_{{ name }} + (head * {{ limit }} + {{ first }} + team + {{ i * DOWN }}u) * {{ length }};
{% for j in range(vectors) %}
        {
            let column = (me + {{ j * LANES }}u) * 4u;
{{ put(name, "place", value ~ "_" ~ i ~ "_" ~ j ~ (" * " ~ factor ~ "_" ~ i if factor else ""), "column", length) }}
        }
{% endfor %}
    }
{% endfor %}
{% endmacro %}
