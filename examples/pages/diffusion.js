// Images of digits that a diffusion model draws from noise, step by step, and training on the images that it has learnt from.

import { load } from "polyhal";
import { download, element, report, statisticsTable } from "polyhal/view";

const [CELLS, SCALE, SHOWN] = [8, 10, 11];
const root = document.getElementById("page");
const data = JSON.parse(document.getElementById("polyhal-data").textContent);
const size = CELLS * CELLS;

root.append(
  element("style", {
    textContent: `
      .images { display: grid; grid-template-columns: repeat(10, minmax(0, ${CELLS * SCALE}px)); gap: 4px; margin: 0.5rem 0 1rem; }
      .images.path { grid-template-columns: repeat(${SHOWN}, minmax(0, ${CELLS * SCALE}px)); }
      .images canvas { width: 100%; image-rendering: pixelated; border-radius: 2px; cursor: pointer; }
      .images canvas.followed { outline: 2px solid currentColor; }
      figure { margin: 1rem 0 0; }
      select, progress { margin-right: 0.75rem; vertical-align: middle; }`,
  }),
);

/** A number from the standard normal distribution, by Box and Muller. */
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

/** Draw the pixels, -1 to 1, as ink on white. */
function paint(canvas, pixels) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(CELLS, CELLS);
  pixels.forEach((x, i) => {
    const shade = 255 * (1 - Math.min(Math.max((x + 1) / 2, 0), 1));
    image.data.set([shade, shade, shade, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
}

function grid(count, className) {
  const canvases = Array.from({ length: count }, () => element("canvas", { width: CELLS, height: CELLS }));
  return { canvases, element: element("div", { className }, canvases) };
}

function batch() {
  const image = new Float32Array(data.batch * size);
  const digit = new Int32Array(data.batch);
  for (let i = 0; i < data.batch; i++) {
    const k = Math.floor(Math.random() * data.labels.length);
    image.set(data.images[k].map((x) => x / 16), size * i);
    digit[i] = data.labels[k];
  }
  return { image, digit };
}

await report(async () => {
  const bundle = await load({ progress: (text) => report(() => text) });
  const { denoise, train } = bundle.programs;
  const samples = grid(data.drawn, "images");
  const path = grid(SHOWN, "images path");
  const caption = element("figcaption");
  const statistics = element("div", {}, [statisticsTable(denoise)]);
  const bar = element("progress", { max: data.levels, value: 0 });
  const choice = element("select", { id: "digit" }, [
    element("option", { value: "", textContent: "all digits" }),
    ...Array.from({ length: 10 }, (_, i) => element("option", { value: i, textContent: `only ${i}` })),
  ]);
  let steps = []; // the images of all samples after each step
  let followed = 0;

  const follow = (index) => {
    followed = index;
    samples.canvases.forEach((canvas, i) => canvas.classList.toggle("followed", i === followed));
    path.canvases.forEach((canvas, i) => {
      const step = Math.round((i * (steps.length - 1)) / (SHOWN - 1));
      if (steps.length) paint(canvas, steps[step].subarray(size * followed, size * (followed + 1)));
    });
    caption.textContent = `Image ${followed + 1}, from noise to a digit: ${data.levels} steps; ${SHOWN} are shown. Select another above.`;
  };
  samples.canvases.forEach((canvas, i) => canvas.addEventListener("click", () => follow(i)));

  const draw = async () => {
    const digit = Int32Array.from({ length: data.drawn }, (_, i) => (choice.value === "" ? i % 10 : Number(choice.value)));
    let image = Float32Array.from({ length: data.drawn * size }, normal);
    steps = [image];
    const start = performance.now();
    for (let level = data.levels - 1; level >= 0; level--) {
      ({ image } = await denoise.run({ image, digit, level: new Int32Array(data.drawn).fill(level) }));
      steps.push(image);
      samples.canvases.forEach((canvas, i) => paint(canvas, image.subarray(size * i, size * (i + 1))));
      bar.value = data.levels - level;
      if (level % 5 === 0) {
        report(() => `step ${data.levels - level} of ${data.levels}`);
        await new Promise((resolve) => setTimeout(resolve)); // lets the browser paint
      }
    }
    const seconds = (performance.now() - start) / 1e3;
    statistics.replaceChildren(statisticsTable(denoise, data.levels / seconds));
    follow(followed);
    return `${data.drawn} images after ${data.levels} steps, in ${seconds.toFixed(1)} s`;
  };
  const learn = async (count) => {
    let loss;
    for (let i = 1; i <= count; i++) {
      loss = await train.run(batch(), { read: i === count ? ["loss"] : [] });
      bar.value = (data.levels * i) / count;
      report(() => `step ${i} of ${count}`);
    }
    return `loss ${loss.loss[0].toFixed(4)} after ${count} more steps; ${await draw()}`;
  };
  const button = (text, action) => {
    const made = element("button", { textContent: text });
    made.addEventListener("click", () => report(action));
    return made;
  };
  root.append(
    element("p", { textContent: "A network on your GPU removes noise from random pixels, a little in each step, until digits are left." }),
    choice,
    button("Draw", draw),
    button("Train 100 steps", () => learn(100)),
    button("Save the weights", async () => download(await bundle.checkpoint(), "diffusion.safetensors")),
    bar,
    samples.element,
    element("figure", {}, [caption, path.element]),
    statistics,
  );
  window.polyhal = bundle;
  bundle.lost.then((text) => report(() => { throw new Error(text); }));
  return `ready after ${(bundle.statistics.loadMs / 1e3).toFixed(1)} s; ${await draw()}`;
});
