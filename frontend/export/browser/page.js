import { load } from "polyhal";
import { report, statisticsTable, element, download, size } from "polyhal/view";

const SHOWN = 12;
const root = document.getElementById("page");

function example(tensor) {
  const count = tensor.shape.reduce((a, b) => a * b, 1);
  return Array.from({ length: count }, () => (tensor.dtype.startsWith("float") ? Math.random() * 2 - 1 : 0));
}

const shown = (values) => {
  const first = Array.from(values.slice(0, SHOWN), (x) => (Number.isInteger(x) ? x : Number(x).toPrecision(6)));
  return first.join("  ") + (values.length > SHOWN ? `  … ${values.length} numbers` : "");
};

function section(name, program) {
  const fields = new Map();
  const results = element("output");
  const statistics = element("div");
  const rows = program.inputs.map((tensor) => {
    const field = element("textarea", { rows: 2, placeholder: "numbers; empty: chosen at random" });
    fields.set(tensor.name, [tensor, field]);
    return [`${tensor.name}: ${tensor.dtype}[${tensor.shape.join(", ")}]`, field];
  });
  for (const [key, value] of Object.entries(program.numbers.named)) {
    const field = element("input", { value: String(value), size: 12 });
    field.addEventListener("change", () => report(() => program.set(key, Number(field.value))));
    rows.push([key, field]);
  }
  const inputs = () =>
    Object.fromEntries(
      [...fields].map(([key, [tensor, field]]) => {
        const numbers = field.value.trim() ? field.value.trim().split(/[\s,]+/).map(Number) : example(tensor);
        if (numbers.some(Number.isNaN)) throw new Error(`${key} has a part that is no number`);
        return [key, numbers];
      }),
    );
  const run = async (times) => {
    const given = inputs();
    const start = performance.now();
    for (let i = 1; i < times; i++) await program.run(i === 1 ? given : {}, { read: [] });
    const found = await program.run(times === 1 ? given : {});
    const seconds = (performance.now() - start) / 1e3;
    results.textContent = Object.entries(found).map(([key, values]) => `${key}: ${shown(values)}`).join("\n");
    statistics.replaceChildren(statisticsTable(program, times / seconds));
  };
  const buttons = [["Run", 1], ["Run 100 times", 100]].map(([text, times]) => {
    const button = element("button", { textContent: text });
    button.addEventListener("click", () => report(() => run(times)));
    return button;
  });
  statistics.append(statisticsTable(program));
  const table = element("table", { className: "inputs" }, rows.map(([k, v]) => element("tr", {}, [element("th", { textContent: k }), element("td", {}, [v])])));
  return element("section", {}, [element("h2", { textContent: name }), table, ...buttons, results, statistics]);
}

await report(async () => {
  const bundle = await load({ progress: (text) => report(() => text) });
  for (const [name, program] of Object.entries(bundle.programs)) root.append(section(name, program));
  const save = element("button", { textContent: "Save the state" });
  save.addEventListener("click", () => report(async () => download(await bundle.checkpoint(), "state.safetensors")));
  const file = element("input", { type: "file", accept: ".safetensors" });
  file.addEventListener("change", () => report(async () => bundle.restore(await file.files[0].arrayBuffer())));
  root.append(element("h2", { textContent: "State" }), save, element("label", {}, ["Continue from a file: ", file]));
  window.polyhal = bundle;
  bundle.lost.then((text) => report(() => { throw new Error(text); }));
  return `ready after ${(bundle.statistics.loadMs / 1e3).toFixed(2)} s; ${size(bundle.statistics.downloadBytes)} of weights and state`;
});
