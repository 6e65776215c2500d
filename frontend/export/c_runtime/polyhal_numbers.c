/* Numbers that a step computes before each run, with the arithmetic of Python: step counts, learning rates, seeds. */
#include "polyhal_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static polyhal_scalar integer(int64_t value) {
    polyhal_scalar x = {0, 0, 0.0};
    x.integer = value;
    return x;
}

static polyhal_scalar real(double value) {
    polyhal_scalar x = {1, 0, 0.0};
    x.real = value;
    return x;
}

double polyhal_scalar_value(polyhal_scalar x) { return x.is_float ? x.real : (double)x.integer; }

static int compare(polyhal_scalar a, polyhal_scalar b) {
    double x = polyhal_scalar_value(a), y = polyhal_scalar_value(b);
    if (!a.is_float && !b.is_float) return (a.integer > b.integer) - (a.integer < b.integer);
    return (x > y) - (x < y);
}

/* Integers wrap at 64 bits; Python's would grow. */
static int64_t wrapped(uint64_t bits) {
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t integer_power(int64_t base, int64_t exponent) {
    uint64_t result = 1, factor = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result *= factor;
        factor *= factor;
    }
    return wrapped(result);
}

/* Python's floor division and modulo of integers; `b` is not 0. */
static int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == -1) return wrapped(0u - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_remainder(int64_t a, int64_t b) {
    if (b == -1) return 0;
    return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}

static double real_remainder(double x, double y) {
    double remainder = fmod(x, y);
    if (remainder != 0.0) return (remainder < 0) != (y < 0) ? remainder + y : remainder;
    return copysign(0.0, y);
}

static double real_quotient(double x, double y) {
    double remainder = fmod(x, y), quotient = (x - remainder) / y, rounded;
    if (remainder != 0.0 && (remainder < 0) != (y < 0)) quotient -= 1.0;
    if (quotient == 0.0) return copysign(0.0, x / y);
    rounded = floor(quotient);
    return quotient - rounded > 0.5 ? rounded + 1.0 : rounded;
}

static int is_zero(polyhal_scalar x) { return x.is_float ? x.real == 0.0 : x.integer == 0; }

/* Compute an operation of two numbers that depends on whether both are integers. */
static polyhal_scalar arithmetic(polyhal_operation operation, polyhal_scalar a, polyhal_scalar b) {
    double x = polyhal_scalar_value(a), y = polyhal_scalar_value(b);
    int exact = !a.is_float && !b.is_float;
    uint64_t m = (uint64_t)a.integer, n = (uint64_t)b.integer;
    switch (operation) {
    case POLYHAL_ADD: return exact ? integer(wrapped(m + n)) : real(x + y);
    case POLYHAL_SUBTRACT: return exact ? integer(wrapped(m - n)) : real(x - y);
    case POLYHAL_MULTIPLY: return exact ? integer(wrapped(m * n)) : real(x * y);
    case POLYHAL_FLOOR_DIVIDE: return exact ? integer(floor_quotient(a.integer, b.integer)) : real(real_quotient(x, y));
    case POLYHAL_MODULO: return exact ? integer(floor_remainder(a.integer, b.integer)) : real(real_remainder(x, y));
    case POLYHAL_POWER:
        return exact && b.integer >= 0 ? integer(integer_power(a.integer, b.integer)) : real(pow(x, y));
    default: return real(x / y);
    }
}

static polyhal_scalar function(polyhal_operation operation, polyhal_scalar a, polyhal_scalar b, polyhal_scalar c) {
    double x = polyhal_scalar_value(a);
    switch (operation) {
    case POLYHAL_NEGATIVE: return a.is_float ? real(-x) : integer(wrapped(0u - (uint64_t)a.integer));
    case POLYHAL_POSITIVE: return a;
    case POLYHAL_ABSOLUTE: return a.is_float ? real(fabs(x)) : a.integer < 0 ? integer(wrapped(0u - (uint64_t)a.integer)) : a;
    case POLYHAL_EXPM1: return real(expm1(x));
    case POLYHAL_LOG: return real(log(x));
    case POLYHAL_SQRT: return real(sqrt(x));
    case POLYHAL_SIGN: return integer((x > 0) - (x < 0));
    case POLYHAL_GREATER: return integer(compare(a, b) > 0);
    case POLYHAL_LESS: return integer(compare(a, b) < 0);
    case POLYHAL_NOT_EQUAL: return integer(compare(a, b) != 0);
    case POLYHAL_MAXIMUM: return compare(b, a) > 0 ? b : a;
    case POLYHAL_MINIMUM: return compare(b, a) < 0 ? b : a;
    case POLYHAL_WHERE: return is_zero(a) ? c : b;
    case POLYHAL_TO_BOOL: return integer(!is_zero(a));
    case POLYHAL_TO_INT: return a.is_float ? integer((int64_t)x) : a;
    case POLYHAL_TO_FLOAT: return real(x);
    default: return arithmetic(operation, a, b);
    }
}

static int divides(polyhal_operation operation) {
    return operation == POLYHAL_DIVIDE || operation == POLYHAL_FLOOR_DIVIDE || operation == POLYHAL_MODULO;
}

/* Whether Python raises an error if finite operands give a result that is not finite. */
static int must_be_finite(polyhal_operation operation) {
    return operation == POLYHAL_POWER || operation == POLYHAL_EXPM1 || operation == POLYHAL_LOG || operation == POLYHAL_SQRT;
}

static int compute(polyhal_step *step, const polyhal_scalar *named, const polyhal_stream_state *streams, uint32_t i,
                   polyhal_scalar *values) {
    const polyhal_number *number = &step->program->numbers[i];
    const uint32_t *operands = number->operands;
    const polyhal_scalar a = values[operands[0]], b = values[operands[1]], c = values[operands[2]];
    double x, y;
    switch (number->operation) {
    case POLYHAL_CONSTANT: values[i] = number->is_float ? real(number->real) : integer(number->integer); return POLYHAL_OK;
    case POLYHAL_NAMED: values[i] = named[operands[0]]; return POLYHAL_OK;
    case POLYHAL_SEED: values[i] = integer(wrapped(streams[operands[0]].seed)); return POLYHAL_OK;
    case POLYHAL_OFFSET:
        values[i] = integer(wrapped(streams[operands[0]].offset + (uint64_t)number->integer));
        return POLYHAL_OK;
    default: break;
    }
    x = polyhal_scalar_value(a);
    y = polyhal_scalar_value(b);
    if (divides(number->operation) && is_zero(b)) {
        return polyhal_fail(step, POLYHAL_NUMBER, "number %lu divides %g by zero", (unsigned long)i, x);
    }
    if (number->operation == POLYHAL_TO_INT && a.is_float && !(fabs(x) < 9223372036854775808.0)) {
        return polyhal_fail(step, POLYHAL_NUMBER, "number %lu, %g, does not fit 64 bits", (unsigned long)i, x);
    }
    values[i] = function(number->operation, a, b, c);
    if (must_be_finite(number->operation) && isfinite(x) && isfinite(y) && !isfinite(polyhal_scalar_value(values[i]))) {
        return polyhal_fail(step, POLYHAL_NUMBER, "number %lu cannot be computed from %g and %g", (unsigned long)i, x, y);
    }
    return POLYHAL_OK;
}

typedef union kernel_number {
    uint32_t u32;
    uint64_t u64;
    float f32;
    double f64;
} kernel_number;

static float single(double x) {
    /* A conversion beyond the range is undefined in C. */
    const double beyond = 0x1.ffffffp127;
    return fabs(x) >= beyond ? (float)copysign(HUGE_VAL, x) : (float)x;
}

/* The lowest 64 bits of the integer before the point of a finite number, as of Python's int(x) % 2**64. */
static uint64_t low_bits(double x) {
    double low = fmod(trunc(x), 18446744073709551616.0);
    return low < 0 ? 0u - (uint64_t)-low : (uint64_t)low;
}

/* Convert a number to the type of a kernel's parameter; integers wrap. Returns its size, or 0 for an integer that is not finite. */
static size_t convert(polyhal_kind kind, polyhal_scalar x, kernel_number *value) {
    double as_real = polyhal_scalar_value(x);
    uint64_t bits = (uint64_t)x.integer;
    if (kind == POLYHAL_FLOAT) {
        value->f32 = single(as_real);
        return sizeof value->f32;
    }
    if (kind == POLYHAL_DOUBLE) {
        value->f64 = as_real;
        return sizeof value->f64;
    }
    if (x.is_float) {
        if (!isfinite(x.real)) return 0;
        bits = low_bits(x.real);
    }
    if (kind == POLYHAL_INT || kind == POLYHAL_UINT) {
        value->u32 = (uint32_t)bits;
        return sizeof value->u32;
    }
    value->u64 = bits;
    return sizeof value->u64;
}

static int same(polyhal_scalar a, polyhal_scalar b) {
    return a.is_float == b.is_float && a.integer == b.integer && memcmp(&a.real, &b.real, sizeof a.real) == 0;
}

/* Pass numbers to the kernels; `values` replace the last run's. */
static int pass(polyhal_step *step, const polyhal_scalar *values) {
    const polyhal_program *program = step->program;
    uint32_t i, place;
    for (i = 0; i < program->launch_count; i++) {
        const polyhal_launch *launch = &program->launches[i];
        for (place = 0; place < launch->argument_count; place++) {
            const polyhal_argument *argument = &launch->arguments[place];
            kernel_number value;
            size_t size;
            cl_int status;
            if (argument->kind < POLYHAL_INT) continue;
            if (step->numbers_are_set && same(values[argument->index], step->numbers[argument->index])) continue;
            size = convert(argument->kind, values[argument->index], &value);
            if (size == 0) {
                return polyhal_fail(step, POLYHAL_NUMBER, "number %lu is %g, which does not fit argument %lu of %s",
                                    (unsigned long)argument->index, polyhal_scalar_value(values[argument->index]),
                                    (unsigned long)place, program->kernels[launch->kernel].name);
            }
            status = step->cl.SetKernelArg(step->kernels[i], place, size, &value);
            if (status != CL_SUCCESS) {
                return polyhal_fail_opencl(step, status, "passing a number to", program->kernels[launch->kernel].name);
            }
        }
    }
    return POLYHAL_OK;
}

int polyhal_advance_numbers(polyhal_step *step) {
    const polyhal_program *program = step->program;
    polyhal_scalar *named, *values;
    uint32_t i;
    int code = POLYHAL_OK;
    if (program->number_count == 0 && program->named_count == 0) return POLYHAL_OK;
    values = calloc((size_t)program->number_count + program->named_count + 1, sizeof *values);
    if (values == NULL) return polyhal_fail(step, POLYHAL_NO_MEMORY, "no memory for the numbers of a run");
    named = values + program->number_count;
    for (i = 0; i < program->named_count; i++) {
        named[i] = step->named[i];
        if (program->named[i].grows != 0) named[i] = arithmetic(POLYHAL_ADD, named[i], integer(program->named[i].grows));
    }
    for (i = 0; i < program->number_count && code == POLYHAL_OK; i++) code = compute(step, named, step->streams, i, values);
    if (code == POLYHAL_OK) code = pass(step, values);
    step->numbers_are_set = code == POLYHAL_OK; /* after a failure, kernels may have some of the new numbers */
    if (code == POLYHAL_OK) {
        memcpy(step->numbers, values, program->number_count * sizeof *values);
        memcpy(step->named, named, program->named_count * sizeof *named);
        for (i = 0; i < program->stream_count; i++) step->streams[i].offset += program->streams[i].blocks;
    }
    free(values);
    return code;
}
