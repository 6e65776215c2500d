// Checkpoints: the state of programs as a safetensors file, which polyhal.load reads.

import { DTYPES, countOf } from "polyhal/tensors";

const WIDER = { int64: BigInt64Array, uint64: BigUint64Array };

/** The bytes of a file with `tensors` ({name, dtype, shape, values}) and a text for each key of `metadata`. */
export function encode(tensors, metadata) {
  const header = Object.assign(Object.create(null), { __metadata__: metadata });
  const parts = [];
  let offset = 0;
  for (const { name, dtype, shape, values } of tensors) {
    const kind = DTYPES[dtype];
    const bytes = new Uint8Array(stored(kind, dtype, values));
    header[name] = { dtype: kind.saved, shape, data_offsets: [offset, offset + bytes.length] };
    parts.push(bytes);
    offset += bytes.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(32);
  padded.set(text);
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(padded.length), true);
  return new Blob([length.buffer, padded, ...parts], { type: "application/octet-stream" });
}

function stored(kind, dtype, values) {
  if (dtype in WIDER) return WIDER[dtype].from(values, BigInt).buffer;
  const target = new (kind.stored ?? kind.array)(values.length);
  for (let i = 0; i < values.length; i++) target[i] = kind.write ? kind.write(values[i]) : values[i];
  return target.buffer;
}

/** The tensors and the metadata of a safetensors file. Throws an Error for other files. */
export function decode(buffer) {
  const bytes = new Uint8Array(buffer);
  const refuse = (problem) => {
    throw new Error(`this is no checkpoint: ${problem}; choose a safetensors file`);
  };
  if (bytes.length < 10) refuse(`it has ${bytes.length} bytes`);
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  if (length > bytes.length - 8) refuse(`its header has ${length} bytes of ${bytes.length}`);
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  } catch (error) {
    refuse(error.message);
  }
  const tensors = new Map();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const dtype = Object.keys(DTYPES).find((d) => DTYPES[d].saved === entry.dtype);
    const [start, end] = entry.data_offsets ?? [];
    const kind = DTYPES[dtype];
    if (!kind || !(start <= end) || 8 + length + end > bytes.length || end - start !== countOf(entry.shape) * kind.size) {
      refuse(`${name} is ${entry.dtype} [${entry.shape}] at bytes ${start} to ${end}`);
    }
    const part = bytes.slice(8 + length + start, 8 + length + end);
    const raw = new (kind.stored ?? kind.array)(part.buffer);
    const values = kind.read ? kind.array.from(raw, kind.read) : raw;
    tensors.set(name, { dtype, shape: entry.shape, values });
  }
  return { tensors, metadata: header.__metadata__ ?? {} };
}
