// Text generation, character by character, and training on a text that the user pastes.

import { load } from "polyhal";
import { download, element, report, statisticsTable } from "polyhal/view";

const root = document.getElementById("page");
const { vocabulary, window: WINDOW, batch: BATCH, prompt: PROMPT } = JSON.parse(
  document.getElementById("polyhal-data").textContent,
);
const UNKNOWN = 1; // 0 is padding, which is never generated either
const numberOf = new Map(vocabulary.map((c, i) => [c, i]));
const encode = (text) => Array.from(text, (c) => numberOf.get(c) ?? UNKNOWN);

/** Draw from the distribution of logits at a temperature; 0 takes the most probable. */
function draw(logits, temperature) {
  const allowed = logits.map((x, i) => (i <= UNKNOWN ? -Infinity : x));
  const most = Math.max(...allowed);
  if (temperature <= 0) return allowed.indexOf(most);
  const weights = allowed.map((x) => Math.exp((x - most) / temperature));
  let left = Math.random() * weights.reduce((a, b) => a + b, 0);
  return weights.findIndex((w) => (left -= w) < 0);
}

await report(async () => {
  const bundle = await load({ progress: (text) => report(() => text) });
  const { train, decode } = bundle.programs;
  const prompt = element("textarea", { rows: 2, value: PROMPT, id: "prompt" });
  const temperature = element("input", { type: "range", min: 0, max: 1.5, step: 0.1, value: 0.7 });
  const written = element("output", { id: "written" });
  const statistics = element("div");
  const corpus = element("textarea", { rows: 5, placeholder: "paste a text of at least some thousand characters" });
  let running = 0;

  async function generate(count) {
    const mine = ++running;
    const tokens = encode(prompt.value || " ").slice(1 - WINDOW);
    written.textContent = prompt.value;
    let position = 0;
    const start = performance.now();
    for (let i = 0; i < count && mine === running; i++) {
      if (position === WINDOW) {
        tokens.splice(0, tokens.length - WINDOW / 2); // the context is full: go on with its later half
        position = 0;
      }
      while (position < tokens.length - 1) {
        await decode.run({ token: [tokens[position]], position: [position++] }, { read: [] });
      }
      const { logits } = await decode.run({ token: [tokens[position]], position: [position++] });
      tokens.push(draw([...logits], Number(temperature.value)));
      written.textContent += vocabulary[tokens.at(-1)];
      statistics.replaceChildren(statisticsTable(decode, (1e3 * (i + 1)) / (performance.now() - start)));
    }
  }

  async function learn(steps) {
    const mine = ++running;
    const tokens = encode(corpus.value);
    if (tokens.length < 2 * WINDOW) throw new Error(`the text has ${tokens.length} characters; paste at least ${2 * WINDOW}`);
    const start = performance.now();
    for (let i = 1; i <= steps && mine === running; i++) {
      const starts = Array.from({ length: BATCH }, () => Math.floor(Math.random() * (tokens.length - WINDOW)));
      const rows = (shift) => starts.flatMap((s) => tokens.slice(s + shift, s + shift + WINDOW));
      const shows = i % 10 === 0 || i === steps;
      const { loss } = await train.run({ window: rows(0), following: rows(1) }, { read: shows ? ["loss"] : [] });
      if (!shows) continue;
      await report(() => `step ${i} of ${steps}: ${(loss[0] / Math.LN2).toFixed(2)} bits per character`);
      statistics.replaceChildren(statisticsTable(train, (1e3 * i) / (performance.now() - start)));
    }
  }

  const button = (text, action) => {
    const made = element("button", { textContent: text });
    made.addEventListener("click", () => report(action));
    return made;
  };
  root.append(
    element("p", {}, [prompt]),
    element("p", {}, [element("label", {}, ["temperature ", temperature])]),
    button("Continue the text", () => generate(200)),
    button("Stop", () => void running++),
    button("Save the weights", async () => download(await bundle.checkpoint(), "gpt.safetensors")),
    element("p", {}, [written]),
    element("h2", { textContent: "Train it on a text" }),
    element("p", {}, [corpus]),
    button("Train 200 steps", () => learn(200)),
    statistics,
  );
  window.polyhal = bundle;
  bundle.lost.then((text) => report(() => { throw new Error(text); }));
  return `ready after ${(bundle.statistics.loadMs / 1e3).toFixed(1)} s`;
});
