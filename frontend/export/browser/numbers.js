// Numbers of a program that change from run to run: named ones, arithmetic on them, and random streams.
//
// Integers are BigInt and floats are Number, so that arithmetic is Python's.

const isInteger = (x) => typeof x === "bigint";
const float = (x) => Number(x);
const divideFloor = (a, b) => a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n);

/** Apply one function to integers and another to floats; a single float makes both floats. */
function arithmetic(onIntegers, onFloats) {
  return (a, b) => {
    const [x, y] = [a, b].map((v) => (typeof v === "boolean" ? BigInt(v) : v));
    return isInteger(x) && isInteger(y) ? onIntegers(x, y) : onFloats(float(x), float(y));
  };
}

/** Floor and remainder of a quotient of floats; the remainder has the sign of the divisor. */
function divideFloats(a, b) {
  const remainder = a % b;
  const adjusts = remainder !== 0 && remainder < 0 !== b < 0;
  const quotient = (a - remainder) / b - (adjusts ? 1 : 0);
  return [Math.round(quotient), adjusts ? remainder + b : remainder];
}

const compare = (x) => Number(x);

export const OPERATIONS = {
  add: arithmetic((a, b) => a + b, (a, b) => a + b),
  sub: arithmetic((a, b) => a - b, (a, b) => a - b),
  mul: arithmetic((a, b) => a * b, (a, b) => a * b),
  truediv: (a, b) => float(a) / float(b),
  floordiv: arithmetic(divideFloor, (a, b) => divideFloats(a, b)[0]),
  mod: arithmetic((a, b) => a - divideFloor(a, b) * b, (a, b) => divideFloats(a, b)[1]),
  pow: arithmetic((a, b) => (b < 0n ? float(a) ** float(b) : a ** b), (a, b) => a ** b),
  neg: (a) => -(typeof a === "boolean" ? BigInt(a) : a),
  pos: (a) => (typeof a === "boolean" ? BigInt(a) : a),
  abs: (a) => (a < 0 ? -a : OPERATIONS.pos(a)),
  sqrt: (a) => Math.sqrt(float(a)),
  log: (a) => Math.log(float(a)),
  expm1: (a) => Math.expm1(float(a)),
  sign: (a) => BigInt(Math.sign(float(a)) || 0),
  greater: (a, b) => compare(a) > compare(b),
  less: (a, b) => compare(a) < compare(b),
  not_equal: (a, b) => compare(a) !== compare(b),
  maximum: (a, b) => (compare(b) > compare(a) ? b : a),
  minimum: (a, b) => (compare(b) < compare(a) ? b : a),
  where: (condition, x, y) => (float(condition) ? x : y),
  int: (a) => (isInteger(a) ? a : BigInt(Math.trunc(float(a)))),
  float,
  bool: (a) => Boolean(float(a)),
};

/** A number of the header: text with its type. */
function literal({ type, value }) {
  if (type === "int") return BigInt(value);
  if (type === "bool") return value === "True";
  return { inf: Infinity, "-inf": -Infinity, nan: NaN }[value] ?? Number(value);
}

/** The numbers and streams of one program. */
export class Numbers {
  constructor(numbers, streams) {
    this.entries = numbers.map((entry) => this.#read(entry));
    this.streams = streams.map((s) => ({ seed: BigInt(s.seed), offset: BigInt(s.offset), blocks: BigInt(s.blocks) }));
    this.values = [];
  }

  #read(entry) {
    if ("stream" in entry) return { stream: entry.stream, start: entry.start === null ? null : BigInt(entry.start) };
    if ("operation" in entry) {
      const operands = entry.operands.map((x) => ("number" in x ? { number: x.number } : { value: literal(x) }));
      return { operation: OPERATIONS[entry.operation], operands };
    }
    return { name: entry.name, value: literal(entry), grows: BigInt(entry.grows ?? 0) };
  }

  /** Compute all numbers of the next run, and advance what grows. Returns the values by index. */
  next() {
    const starts = this.streams.map((s) => s.offset);
    this.streams.forEach((s) => (s.offset += s.blocks));
    this.values = [];
    for (const entry of this.entries) {
      if ("stream" in entry) {
        const stream = this.streams[entry.stream];
        this.values.push(entry.start === null ? stream.seed : starts[entry.stream] + entry.start);
      } else if (entry.operation) {
        this.values.push(entry.operation(...entry.operands.map((x) => ("number" in x ? this.values[x.number] : x.value))));
      } else {
        if (entry.grows) entry.value = OPERATIONS.add(entry.value, entry.grows);
        this.values.push(entry.value);
      }
    }
    return this.values;
  }

  /** The numbers that may be set, by name. */
  get named() {
    return Object.fromEntries(this.entries.filter((e) => "name" in e).map((e) => [e.name, e.value]));
  }

  /** Set a number; later runs use it. */
  set(name, value) {
    const entry = this.entries.find((e) => e.name === name);
    if (!entry) throw new Error(`there is no number "${name}"; there are ${Object.keys(this.named).join(", ") || "none"}`);
    if (isInteger(entry.value)) {
      if (!isInteger(value) && !Number.isSafeInteger(value)) throw new Error(`"${name}" is an integer, and ${value} is not`);
      entry.value = BigInt(value);
    } else {
      entry.value = typeof entry.value === "boolean" ? Boolean(value) : Number(value);
    }
  }

  /** The contents of a checkpoint, as plain data. */
  save() {
    const numbers = Object.fromEntries(Object.entries(this.named).map(([k, v]) => [k, String(v)]));
    return { numbers, streams: this.streams.map((s) => ({ seed: String(s.seed), offset: String(s.offset) })) };
  }

  /** Continue from the data of `save`. */
  restore({ numbers, streams }) {
    for (const entry of this.entries) {
      if (!("name" in entry) || !Object.hasOwn(numbers, entry.name)) continue;
      const text = numbers[entry.name];
      const type = { bigint: "int", boolean: "bool", number: "float" }[typeof entry.value];
      entry.value = type === "bool" ? text === "true" : type === "int" ? BigInt(text) : Number(text);
    }
    streams.forEach((saved, i) => {
      if (this.streams[i]) Object.assign(this.streams[i], { seed: BigInt(saved.seed), offset: BigInt(saved.offset) });
    });
  }
}

const STORE = {
  int: (view, at, x) => view.setInt32(at, Number(BigInt.asIntN(32, OPERATIONS.int(x))), true),
  uint: (view, at, x) => view.setUint32(at, Number(BigInt.asUintN(32, OPERATIONS.int(x))), true),
  long: (view, at, x) => view.setBigInt64(at, BigInt.asIntN(64, OPERATIONS.int(x)), true),
  ulong: (view, at, x) => view.setBigUint64(at, BigInt.asUintN(64, OPERATIONS.int(x)), true),
  float: (view, at, x) => view.setFloat32(at, float(x), true),
  double: (view, at, x) => view.setFloat64(at, float(x), true),
};

/** Store a number in an argument, in the type that the kernel declares. */
export function store(view, at, type, value) {
  STORE[type](view, at, typeof value === "boolean" ? BigInt(value) : value);
}
