// One program on a device: its buffers, pipelines and launches, and runs of it.

import { Numbers, store } from "polyhal/numbers";
import { pack, spanOf, unpack } from "polyhal/tensors";

const SLOT = 256; // alignment of uniform buffers in every browser
const roundUp = (n, multiple) => Math.ceil(n / multiple) * multiple;

export class Program {
  /** Use `Bundle`, which compiles programs and shares state between them. */
  constructor(device, name, header) {
    this.device = device;
    this.name = name;
    this.header = header;
    this.numbers = new Numbers(header.numbers, header.streams);
    this.inputs = header.inputs;
    this.outputs = header.outputs;
    this.state = header.state;
    /** Bytes by kind of memory, milliseconds of compiling and of the first run, and the number of runs. */
    this.statistics = { bytes: {}, kernels: header.kernels.length, launches: 0, compileMs: 0, firstRunMs: null, runs: 0 };
    this.buffers = [];
  }

  /** Allocate buffers. `shared` maps numbers of buffers to buffers of other programs. */
  allocate(contents, shared) {
    const { device, header, statistics } = this;
    this.buffers = header.buffers.map((entry, number) => {
      if (shared.has(number)) return shared.get(number);
      statistics.bytes[entry.role] = (statistics.bytes[entry.role] ?? 0) + entry.nbytes;
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
      const buffer = device.createBuffer({ label: `${this.name}: ${entry.role}`, size: entry.nbytes, usage });
      if (entry.content) this.#write(buffer, 0, contents.subarray(entry.content[0], entry.content[0] + entry.content[1]));
      return buffer;
    });
  }

  /** Compile all kernels and bind all launches. Throws an Error that names the kernel that does not compile. */
  async compile() {
    const start = performance.now();
    const { device, header } = this;
    this.uniforms = device.createBindGroupLayout({
      entries: [{ binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform", hasDynamicOffset: true } }],
    });
    const uses = header.kernels.map((_, k) => header.commands.find((c) => c.kernel === k)?.arguments ?? []);
    const kernels = await Promise.all(header.kernels.map((kernel, k) => this.#pipeline(kernel, uses[k])));
    this.#bind(kernels);
    this.statistics.compileMs += performance.now() - start;
  }

  async #pipeline(kernel, uses) {
    const module = this.device.createShaderModule({ label: kernel.name, code: kernel.source });
    const entries = uses
      .filter((a) => "buffer" in a)
      .map((a) => ({
        binding: a.binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: a.access === "read" ? "read-only-storage" : "storage" },
      }));
    const layout = this.device.createBindGroupLayout({ label: kernel.name, entries });
    const groups = uses.some((a) => "bytes" in a) ? [layout, this.uniforms] : [layout];
    try {
      const pipeline = await this.device.createComputePipelineAsync({
        label: kernel.name,
        layout: this.device.createPipelineLayout({ bindGroupLayouts: groups }),
        compute: { module, entryPoint: kernel.entry },
      });
      return { pipeline, layout };
    } catch (error) {
      const info = await module.getCompilationInfo();
      const found = info.messages.filter((m) => m.type === "error").map((m) => `line ${m.lineNum}: ${m.message}`);
      throw new Error(`this browser does not compile the kernel ${kernel.name}: ${found.join("; ") || error.message}`);
    }
  }

  #bind(kernels) {
    const commands = this.header.commands;
    const parameters = commands.map((c) => c.arguments?.find((a) => "bytes" in a) ?? null);
    const sizes = parameters.map((p) => (p ? roundUp(p.bytes.length / 2, SLOT) : 0));
    const most = Math.max(SLOT, ...sizes);
    this.parameters = new Uint8Array(sizes.reduce((a, b) => a + b, most));
    this.view = new DataView(this.parameters.buffer);
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    this.ring = this.device.createBuffer({ label: `${this.name}: parameters`, size: this.parameters.length, usage });
    this.ringGroup = this.device.createBindGroup({
      layout: this.uniforms,
      entries: [{ binding: 0, resource: { buffer: this.ring, size: most } }],
    });
    this.changing = [];
    let offset = 0;
    this.commands = commands.map((command, i) => {
      if (command.copy) return command;
      const { pipeline, layout } = kernels[command.kernel];
      const entries = command.arguments
        .filter((a) => "buffer" in a)
        .map((a) => ({ binding: a.binding, resource: { buffer: this.buffers[a.buffer], offset: a.offset, size: a.nbytes } }));
      const group = this.device.createBindGroup({ label: `${command.op}`, layout, entries });
      const own = offset;
      if (parameters[i]) {
        const { bytes, numbers = [] } = parameters[i];
        for (let at = 0; at < bytes.length; at += 2) this.parameters[own + at / 2] = parseInt(bytes.slice(at, at + 2), 16);
        this.changing.push(...numbers.map((n) => ({ at: own + n.offset, type: n.type, number: n.number })));
        offset += sizes[i];
      }
      this.statistics.launches += 1;
      return { pipeline, group, grid: command.grid, offset: parameters[i] ? own : null };
    });
    this.device.queue.writeBuffer(this.ring, 0, this.parameters);
  }

  /**
   * Run once. `inputs` has an array (typed, or nested lists) for each input by name; an input that is left out keeps its last
   * value. Returns the outputs named in `read` (all by default) as typed arrays by name. With `read: []` it does not wait for
   * the device, so that many runs can be enqueued.
   */
  async run(inputs = {}, { read = this.outputs.map((t) => t.name) } = {}) {
    const start = performance.now();
    this.#setInputs(inputs);
    const wanted = read.map((name) => this.#find(this.outputs, name, "output"));
    const values = this.numbers.next();
    if (this.changing.length) {
      for (const { at, type, number } of this.changing) store(this.view, at, type, values[number]);
      this.device.queue.writeBuffer(this.ring, 0, this.parameters);
    }
    const encoder = this.device.createCommandEncoder({ label: this.name });
    this.#encode(encoder);
    const copies = wanted.map((tensor) => this.#copied(encoder, tensor));
    this.device.queue.submit([encoder.finish()]);
    this.statistics.runs += 1;
    const found = await Promise.all(copies.map((copy) => copy()));
    if (this.statistics.firstRunMs === null) {
      await this.device.queue.onSubmittedWorkDone();
      this.statistics.firstRunMs = performance.now() - start;
    }
    return Object.fromEntries(wanted.map((tensor, i) => [tensor.name, found[i]]));
  }

  #encode(encoder) {
    let pass = null;
    for (const { copy, pipeline, group, grid, offset } of this.commands) {
      if (copy) {
        pass?.end();
        pass = null;
        const [source, target] = [this.buffers[copy.source], this.buffers[copy.target]];
        encoder.copyBufferToBuffer(source, copy.source_offset, target, copy.target_offset, copy.nbytes);
        continue;
      }
      pass ??= encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      if (offset !== null) pass.setBindGroup(1, this.ringGroup, [offset]);
      pass.dispatchWorkgroups(...grid);
    }
    pass?.end();
  }

  /** Set a number such as a learning rate, for later runs. */
  set(name, value) {
    this.numbers.set(name, value);
  }

  /** Read a tensor of the state as a typed array. */
  async readState(name) {
    return this.#readNow(this.#find(this.state, name, "state"));
  }

  /** Replace a tensor of the state. */
  writeState(name, values) {
    const tensor = this.#find(this.state, name, "state");
    this.#write(this.buffers[tensor.buffer], tensor.offset, pack(tensor, values));
  }

  #setInputs(inputs) {
    for (const [name, values] of Object.entries(inputs)) {
      const tensor = this.#find(this.inputs, name, "input");
      this.#write(this.buffers[tensor.buffer], tensor.offset, pack(tensor, values));
    }
  }

  #find(tensors, name, kind) {
    const found = tensors.find((t) => t.name === name);
    if (found) return found;
    const known = tensors.map((t) => t.name).join(", ") || "none";
    throw new Error(`${this.name} has no ${kind} "${name}"; it has ${known}`);
  }

  /** Write bytes, padded to whole words: nothing else is stored behind a tensor in its buffer. */
  #write(buffer, offset, bytes) {
    if (!bytes.length) return;
    const padded = bytes.length % 4 ? new Uint8Array(roundUp(bytes.length, 4)) : bytes;
    if (padded !== bytes) padded.set(bytes);
    this.device.queue.writeBuffer(buffer, offset, padded);
  }

  async #readNow(tensor) {
    const encoder = this.device.createCommandEncoder();
    const read = this.#copied(encoder, tensor);
    this.device.queue.submit([encoder.finish()]);
    return read();
  }

  /** Copy a tensor to memory that can be mapped. Returns a function that waits and returns its elements. */
  #copied(encoder, tensor) {
    const [start, end] = spanOf(tensor);
    if (start === end) return async () => unpack(tensor, new Uint8Array(0));
    const first = Math.floor(start / 4) * 4;
    const size = roundUp(end - first, 4);
    const staging = this.device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    encoder.copyBufferToBuffer(this.buffers[tensor.buffer], first, staging, 0, size);
    return async () => {
      await staging.mapAsync(GPUMapMode.READ);
      const bytes = new Uint8Array(staging.getMappedRange().slice(start - first, end - first));
      staging.unmap();
      staging.destroy();
      return unpack(tensor, bytes);
    };
  }
}
