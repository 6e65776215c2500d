{#- Functions of one integer type T (i32, u32, i64 or u64). -#}
{% set T = T | default("i32") %}
{% set signed = T in ("i32", "i64") %}
{% set one = T ~ "(1)" %}
{% set zero = T ~ "(0)" %}
fn shift_left_{{ T }}(x: {{ T }}, n: {{ T }}) -> {{ T }} { return x << u32(n); }
fn shift_right_{{ T }}(x: {{ T }}, n: {{ T }}) -> {{ T }} { return x >> u32(n); }
fn safe_divisor_{{ T }}(y: {{ T }}) -> {{ T }} {
    return select(y, {{ one }}, y == {{ zero }}{% if signed %} || y == {{ T }}(-1){% endif %});
}
{% if signed %}
fn floor_divide_{{ T }}(x: {{ T }}, y: {{ T }}) -> {{ T }} {
    let d = safe_divisor_{{ T }}(y);
    let q = x / d;
    let floored = select(q, q - {{ one }}, (x - q * d != {{ zero }}) && ((x < {{ zero }}) != (d < {{ zero }})));
    return select(select(floored, {{ zero }} - x, y == {{ T }}(-1)), {{ zero }}, y == {{ zero }});
}
fn floor_remainder_{{ T }}(x: {{ T }}, y: {{ T }}) -> {{ T }} {
    let d = safe_divisor_{{ T }}(y);
    let r = x - (x / d) * d;
    let moved = select(r, r + d, (r != {{ zero }}) && ((r < {{ zero }}) != (d < {{ zero }})));
    return select(moved, {{ zero }}, y == {{ zero }} || y == {{ T }}(-1));
}
{% endif %}
// Exponentiation by squaring. For a negative exponent the result is the truncated reciprocal, which is 0 except for the
// bases 1 and -1.
fn integer_pow_{{ T }}(x: {{ T }}, y: {{ T }}) -> {{ T }} {
{% if signed %}
    if (y < {{ zero }}) {
        let unit = select(x * x, x, (y & {{ one }}) != {{ zero }});
        return select({{ zero }}, unit, x == {{ one }} || x == -{{ one }});
    }
{% endif %}
    var result = {{ one }};
    var base = x;
    var left = y;
    while (left != {{ zero }}) {
        if ((left & {{ one }}) != {{ zero }}) { result = result * base; }
        base = base * base;
        left = left >> 1u;
    }
    return result;
}
