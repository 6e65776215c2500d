// Elements of tensors: conversion between arrays of JavaScript and the bytes of a buffer, at any strides.

const half = new DataView(new ArrayBuffer(4));

function floatOfHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

/** Round a number that has `drop` fraction bits too many in `bits`, to nearest, ties to even. */
const rounded = (bits, drop) => (bits + (1 << (drop - 1)) - 1 + ((bits >>> drop) & 1)) >>> drop;

function halfOfFloat(value) {
  half.setFloat32(0, value);
  const bits = half.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size < 0x38800000) {
    const scaled = Math.abs(Math.fround(value)) * 2 ** 24;
    const low = Math.floor(scaled);
    const up = scaled - low > 0.5 || (scaled - low === 0.5 && low % 2 === 1);
    return sign | (low + (up ? 1 : 0));
  }
  return sign | rounded(size - 0x38000000, 13);
}

function bfloatOfFloat(value) {
  half.setFloat32(0, value);
  const bits = half.getUint32(0);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function floatOfBfloat(bits) {
  half.setUint32(0, bits << 16);
  return half.getFloat32(0);
}

/** Array type, bytes of an element, name in safetensors, and conversions of stored elements, by dtype. */
export const DTYPES = {
  float32: { array: Float32Array, size: 4, saved: "F32" },
  float16: { array: Float32Array, stored: Uint16Array, size: 2, saved: "F16", read: floatOfHalf, write: halfOfFloat },
  bfloat16: { array: Float32Array, stored: Uint16Array, size: 2, saved: "BF16", read: floatOfBfloat, write: bfloatOfFloat },
  int32: { array: Int32Array, size: 4, saved: "I32" },
  uint32: { array: Uint32Array, size: 4, saved: "U32" },
  int16: { array: Int16Array, size: 2, saved: "I16" },
  uint16: { array: Uint16Array, size: 2, saved: "U16" },
  int8: { array: Int8Array, size: 1, saved: "I8" },
  uint8: { array: Uint8Array, size: 1, saved: "U8" },
  bool_: { array: Uint8Array, size: 1, saved: "BOOL", write: (x) => Number(Boolean(x)) },
  int64: { array: BigInt64Array, size: 8, saved: "I64" },
  uint64: { array: BigUint64Array, size: 8, saved: "U64" },
};

export const countOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** Positions of the elements of a tensor in its buffer, relative to the first, in the order of the elements. */
function positions({ shape, strides }) {
  let found = [0];
  shape.forEach((length, axis) => {
    const steps = Array.from({ length }, (_, i) => i * strides[axis]);
    found = found.flatMap((at) => steps.map((step) => at + step));
  });
  return found;
}

export function isContiguous({ shape, strides }) {
  let expected = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    if (shape[axis] !== 1 && strides[axis] !== expected) return false;
    expected *= shape[axis];
  }
  return true;
}

/** The first byte and the one after the last that a tensor without negative strides uses in its buffer. */
export function spanOf(tensor) {
  const { shape, strides, offset, dtype } = tensor;
  if (!countOf(shape)) return [offset, offset];
  const last = shape.reduce((sum, length, axis) => sum + (length - 1) * strides[axis], 0);
  return [offset, offset + (last + 1) * DTYPES[dtype].size];
}

/** The bytes of `values` from the tensor's first to its last element. Throws an Error for another number of elements. */
export function pack(tensor, values) {
  const kind = DTYPES[tensor.dtype];
  const count = countOf(tensor.shape);
  const flat = ArrayBuffer.isView(values) ? values : typeof values === "object" ? [...values].flat(Infinity) : [values];
  if (flat.length !== count) {
    const expected = `${count} numbers of shape [${tensor.shape.join(", ")}]`;
    throw new Error(`"${tensor.name}" got ${flat.length} numbers; expected ${expected}`);
  }
  const Stored = kind.stored ?? kind.array;
  if (flat instanceof kind.array && !kind.write && isContiguous(tensor)) {
    return new Uint8Array(flat.buffer, flat.byteOffset, flat.byteLength);
  }
  const [start, end] = spanOf(tensor);
  const target = new Stored((end - start) / kind.size);
  const places = isContiguous(tensor) ? null : positions(tensor);
  for (let i = 0; i < count; i++) target[places ? places[i] : i] = kind.write ? kind.write(flat[i]) : flat[i];
  return new Uint8Array(target.buffer);
}

/** The elements of a tensor, from the bytes between its first and its last. */
export function unpack(tensor, bytes) {
  const kind = DTYPES[tensor.dtype];
  const count = countOf(tensor.shape);
  const source = new (kind.stored ?? kind.array)(bytes.buffer, bytes.byteOffset, bytes.byteLength / kind.size);
  if (isContiguous(tensor) && !kind.read) return source.slice(0, count);
  const places = isContiguous(tensor) ? null : positions(tensor);
  return kind.array.from({ length: count }, (_, i) => {
    const x = source[places ? places[i] : i];
    return kind.read ? kind.read(x) : x;
  });
}
