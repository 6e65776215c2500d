// Competitors of one page: each has `run()`, which infers once and returns the first result as an array.

const base = location.origin;
const competitors = {};

const numbers = async (address, dtype) => {
  const bytes = await (await fetch(address)).arrayBuffer();
  return dtype === "int32" ? new Int32Array(bytes) : new Float32Array(bytes);
};

const makers = {
  async polyhal({ model, dtype }) {
    const { load } = await import("polyhal");
    const bundle = await load({ address: `${base}/work/${model}` });
    const x = await numbers(`${base}/work/${model}.bin`, dtype);
    const program = bundle.programs.step;
    return { run: async () => (await program.run({ x })).y };
  },

  async onnxruntime({ model, dtype, shape, provider }) {
    const ort = await import(`${base}/onnxruntime/ort.${provider}.min.mjs`);
    ort.env.wasm.wasmPaths = `${base}/onnxruntime/`;
    const data = await (await fetch(`${base}/work/${model}.onnx`)).arrayBuffer();
    const session = await ort.InferenceSession.create(data, { executionProviders: [provider] });
    const values = await numbers(`${base}/work/${model}.bin`, dtype);
    const run = async () => {
      const found = await session.run({ x: new ort.Tensor(dtype, values, shape) });
      return found[session.outputNames[0]].getData();
    };
    return { run };
  },
};

/** Prepare a competitor. Returns its first result, and milliseconds until it was there. */
async function prepare(name, maker, options) {
  const start = performance.now();
  competitors[name] = await makers[maker](options);
  const found = await competitors[name].run();
  return { ms: performance.now() - start, result: Array.from(found) };
}

/** Milliseconds of a number of runs, one after the other. */
async function time(name, count) {
  const start = performance.now();
  for (let i = 0; i < count; i++) await competitors[name].run();
  return performance.now() - start;
}

window.bench = { prepare, time };
