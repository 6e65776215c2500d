// Runs exported steps in a browser with WebGPU: `const bundle = await load()`, `await bundle.programs.step.run({x})`.

import { decode, encode } from "polyhal/checkpoint";
import { Program } from "polyhal/program";

const SCHEMA = 1;
const BROWSERS = "use Chrome or Edge from version 113, Safari from 26, or Firefox from 141";

/** Programs of one export on one device. State that several programs share is one buffer. */
export class Bundle {
  constructor(device, header) {
    this.device = device;
    this.header = header;
    this.programs = Object.create(null); // any name may be a step's
    /** Bytes of the export's contents, and milliseconds until everything was compiled. */
    this.statistics = { downloadBytes: 0, loadMs: 0 };
    /** Promise of a text that says why the device was lost. */
    this.lost = device.lost.then((info) => `the GPU was lost (${info.reason || "unknown reason"}): ${info.message}; reload the page`);
  }

  /** The state of all programs as a safetensors Blob, with the numbers and random states in its metadata. */
  async checkpoint() {
    const tensors = [];
    const numbers = Object.create(null);
    for (const [name, program] of Object.entries(this.programs)) {
      for (const tensor of this.#ownState(name)) {
        const values = await program.readState(tensor.name);
        const dtype = tensor.saved_dtype || tensor.dtype;
        tensors.push({ name: this.#savedName(name, tensor.name), dtype, shape: tensor.shape, values });
      }
      numbers[name] = program.numbers.save();
    }
    return encode(tensors, { numbers: JSON.stringify(numbers) });
  }

  /** Continue from the bytes of a checkpoint. Throws an Error before any change if a tensor is missing or has another shape. */
  restore(buffer) {
    const { tensors, metadata } = decode(buffer);
    const writes = [];
    for (const [name, program] of Object.entries(this.programs)) {
      for (const tensor of this.#ownState(name)) {
        const key = this.#savedName(name, tensor.name);
        const found = tensors.get(key);
        if (!found) throw new Error(`the checkpoint has no ${key}; it has ${[...tensors.keys()].join(", ")}`);
        if (found.shape.join() !== tensor.shape.join()) {
          throw new Error(`${key} has the shape [${found.shape}] in the checkpoint; expected [${tensor.shape}]`);
        }
        const values = typeof found.values[0] === "bigint" ? Float64Array.from(found.values, Number) : found.values;
        writes.push(() => program.writeState(tensor.name, values));
      }
    }
    writes.forEach((write) => write());
    for (const [name, saved] of Object.entries(JSON.parse(metadata.numbers ?? "{}"))) {
      this.programs[name]?.numbers.restore(saved);
    }
  }

  /** The state of a program that is not in the memory of another one's. */
  #ownState(name) {
    const elsewhere = sharedState(this.header, name);
    return this.programs[name].state.filter((t) => !elsewhere.has(t.name));
  }

  /** Names of two programs that do not share them get the program's name in front. */
  #savedName(program, name) {
    const owners = Object.keys(this.programs).filter((other) => {
      return this.#ownState(other).some((t) => t.name === name);
    });
    return owners.length > 1 ? `${program}/${name}` : name;
  }
}

/** The program and the name that own the memory of a program's state, by the name of the state. */
function sharedState(header, name) {
  return new Map(Object.hasOwn(header.shared, name) ? Object.entries(header.shared[name]) : []);
}

/** A GPU device for an export. Throws an Error that says what to do where there is none. */
async function openDevice(features) {
  if (!navigator.gpu) {
    const why = isSecureContext ? `this browser has no WebGPU; ${BROWSERS}` : "WebGPU needs https:// or http://localhost";
    throw new Error(why);
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error(`this browser finds no GPU for WebGPU; update its driver, or ${BROWSERS}`);
  const missing = features.filter((f) => !adapter.features.has(f));
  if (missing.length) {
    const instead = missing.includes("shader-f16") ? "export without float16, then 16-bit weights are computed in 32 bits" : "export the step without it";
    throw new Error(`this GPU lacks ${missing.join(", ")}; ${instead}`);
  }
  return adapter.requestDevice({ requiredFeatures: features });
}

/** Header and contents of an export: embedded in the page, or beside it at `address`. */
async function fetchExport(address) {
  const embedded = document.getElementById("polyhal-export");
  if (embedded && !address) {
    const contents = document.getElementById("polyhal-contents").textContent.trim();
    return [JSON.parse(embedded.textContent), Uint8Array.from(atob(contents), (c) => c.charCodeAt(0))];
  }
  const base = address ?? ".";
  const [header, contents] = await Promise.all(
    ["export.json", "export.bin"].map(async (name) => {
      const response = await fetch(`${base}/${name}`);
      if (!response.ok) throw new Error(`${base}/${name} is missing (HTTP ${response.status}); copy the whole folder`);
      return response;
    }),
  );
  return [await header.json(), new Uint8Array(await contents.arrayBuffer())];
}

/** Load an export and compile its programs. `progress` is called with a text now and then. */
export async function load({ address, progress = () => {} } = {}) {
  const start = performance.now();
  progress("loading");
  const [header, contents] = await fetchExport(address);
  if (header.format !== "polyhal-export" || header.schema !== SCHEMA) {
    throw new Error(`this is a ${header.format} of schema ${header.schema}; expected polyhal-export, schema ${SCHEMA}`);
  }
  if (contents.length !== header.contents.nbytes) {
    throw new Error(`the contents have ${contents.length} bytes of ${header.contents.nbytes}; export the step again`);
  }
  const features = [...new Set(Object.values(header.programs).flatMap((p) => p.features))];
  const bundle = new Bundle(await openDevice(features), header);
  bundle.statistics.downloadBytes = contents.length;
  for (const [name, entry] of Object.entries(header.programs)) {
    progress(`compiling ${entry.kernels.length} kernels of ${name}`);
    const program = new Program(bundle.device, name, entry);
    program.allocate(contents, sharedBuffers(bundle, name, entry));
    await program.compile();
    bundle.programs[name] = program;
  }
  bundle.statistics.loadMs = performance.now() - start;
  return bundle;
}

/** The buffers of a program that belong to programs before it. */
function sharedBuffers(bundle, name, entry) {
  const found = new Map();
  for (const [own, [owner, theirs]] of sharedState(bundle.header, name)) {
    const program = bundle.programs[owner];
    const [mine, other] = [entry.state.find((t) => t.name === own), program.state.find((t) => t.name === theirs)];
    found.set(mine.buffer, program.buffers[other.buffer]);
  }
  return found;
}
