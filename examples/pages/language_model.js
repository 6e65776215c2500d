// A language model that continues a text, token by token.

import { load } from "polyhal";
import { Tokenizer } from "polyhal/tokenizer";
import { element, report, size, statisticsTable } from "polyhal/view";

const root = document.getElementById("page");
const data = JSON.parse(document.getElementById("polyhal-data").textContent);

/** Draw from the distribution of logits at a temperature; 0 takes the most probable. */
function draw(logits, temperature) {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature <= 0) return logits.indexOf(most);
  const weights = logits.map((x) => Math.exp((x - most) / temperature));
  let left = Math.random() * weights.reduce((a, b) => a + b, 0);
  return Math.max(weights.findIndex((w) => (left -= w) < 0), 0);
}

await report(async () => {
  const tokenizer = new Tokenizer(data.tokenizer);
  const bundle = await load({ progress: (text) => report(() => text) });
  const decode = bundle.programs.step;
  const prompt = element("textarea", { rows: 4, value: data.prompt, id: "prompt" });
  const temperature = element("input", { type: "range", min: 0, max: 1.5, step: 0.1, value: 0.7, id: "temperature" });
  const written = element("output", { id: "written" });
  const statistics = element("div");
  let running = 0;

  async function generate() {
    const mine = ++running;
    const tokens = [...data.begin, ...tokenizer.encode(prompt.value)];
    if (!tokens.length) throw new Error("write a text to continue");
    if (tokens.length >= data.context) throw new Error(`the text has ${tokens.length} tokens; shorten it to ${data.context - 1}`);
    written.textContent = "";
    const next = tokenizer.stream();
    tokens.forEach((id) => (written.textContent += next(id)));
    const start = performance.now();
    for (let position = 0; position < data.context && mine === running; position++) {
      const isPrompt = position < tokens.length - 1;
      const step = { token: [tokens[position]], position: [position] };
      const { logits } = await decode.run(step, { read: isPrompt ? [] : ["logits"] });
      if (isPrompt) continue;
      const token = draw(Array.from(logits), Number(temperature.value));
      if (data.ends.includes(token)) break;
      tokens.push(token);
      written.textContent += next(token);
      statistics.replaceChildren(statisticsTable(decode, (1e3 * (position + 1)) / (performance.now() - start), "tokens"));
    }
    return `${tokens.length} tokens`;
  }

  const button = (text, action) => {
    const made = element("button", { textContent: text });
    made.addEventListener("click", () => report(action));
    return made;
  };
  root.append(
    element("p", {}, [prompt]),
    element("p", {}, [element("label", {}, ["temperature ", temperature])]),
    button("Continue the text", generate),
    button("Stop", () => void running++),
    element("p", {}, [written]),
    statistics,
  );
  window.polyhal = bundle;
  bundle.lost.then((text) => report(() => { throw new Error(text); }));
  return `ready after ${(bundle.statistics.loadMs / 1e3).toFixed(1)} s; ${size(bundle.statistics.downloadBytes)} of weights`;
});
