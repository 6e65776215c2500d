// A canvas to draw digits on, the probabilities of the digits, and training on drawn and given images.

import { load } from "polyhal";
import { download, element, report, statisticsTable } from "polyhal/view";

const [CELLS, SIDE, BATCH] = [8, 320, 32];
const root = document.getElementById("page");
const data = JSON.parse(document.getElementById("polyhal-data").textContent);
const drawn = []; // [image, label] pairs of the user

root.append(
  element("style", {
    textContent: `
      .row { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; margin: 1rem 0; }
      canvas { border: 1px solid color-mix(in srgb, currentColor 40%, transparent); background: #fff; touch-action: none; max-width: 100%; }
      .bars div { display: grid; grid-template-columns: 1.5rem 12rem 4rem; gap: 0.5rem; align-items: center; }
      .bars meter { width: 100%; }
      .bars .best { font-weight: 700; }
      .labels button { min-width: 2.4rem; padding: 0.3rem 0.5rem; margin: 0 0.25rem 0.25rem 0; }`,
  }),
);

/** Ink of the drawing in 8 x 8 cells, 0 to 1: centred and scaled like the images that the network knows. */
function imageOf(canvas) {
  const { data: pixels } = canvas.getContext("2d").getImageData(0, 0, SIDE, SIDE);
  const ink = (x, y) => 1 - pixels[4 * (y * SIDE + x)] / 255;
  let [left, right, top, bottom] = [SIDE, -1, SIDE, -1];
  for (let y = 0; y < SIDE; y++) {
    for (let x = 0; x < SIDE; x++) {
      if (ink(x, y) < 0.5) continue;
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
    }
  }
  const image = new Float32Array(CELLS * CELLS);
  if (right < 0) return null;
  const side = Math.max(bottom - top + 1, (right - left + 1) * 1.2); // the digits fill the height
  const [x0, y0] = [(left + right + 1 - side) / 2, (top + bottom + 1 - side) / 2];
  const samples = 8;
  for (let i = 0; i < CELLS * CELLS; i++) {
    let sum = 0;
    for (let s = 0; s < samples * samples; s++) {
      const x = Math.floor(x0 + (((i % CELLS) + ((s % samples) + 0.5) / samples) * side) / CELLS);
      const y = Math.floor(y0 + ((Math.floor(i / CELLS) + (Math.floor(s / samples) + 0.5) / samples) * side) / CELLS);
      if (x >= 0 && x < SIDE && y >= 0 && y < SIDE) sum += ink(x, y);
    }
    image[i] = sum / samples ** 2;
  }
  return image;
}

function drawingArea(onChange) {
  const canvas = element("canvas", { width: SIDE, height: SIDE, id: "drawing" });
  canvas.setAttribute("aria-label", "area to draw a digit");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const clear = () => {
    context.fillStyle = "#fff";
    context.fillRect(0, 0, SIDE, SIDE);
  };
  clear();
  Object.assign(context, { lineWidth: SIDE / 10, lineCap: "round", lineJoin: "round", strokeStyle: "#000" });
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * SIDE) / box.width, ((event.clientY - box.top) * SIDE) / box.height];
  };
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    const now = at(event);
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...now);
    context.stroke();
    last = now;
  });
  canvas.addEventListener("pointerup", () => {
    last = null;
    onChange();
  });
  return { canvas, clear };
}

function bars() {
  const rows = Array.from({ length: 10 }, (_, digit) => {
    const meter = element("meter", { min: 0, max: 1, value: 0 });
    const text = element("span");
    return { meter, text, row: element("div", {}, [element("span", { textContent: digit }), meter, text]) };
  });
  const show = (probabilities) => {
    const best = probabilities.indexOf(Math.max(...probabilities));
    rows.forEach(({ meter, text, row }, i) => {
      meter.value = probabilities[i];
      text.textContent = `${(100 * probabilities[i]).toFixed(1)} %`;
      row.className = i === best ? "best" : "";
    });
  };
  return { element: element("div", { className: "bars", id: "bars" }, rows.map((r) => r.row)), show };
}

/** A batch of known images, half of it the user's as soon as there are any. */
function batch() {
  const image = new Float32Array(BATCH * 64);
  const label = new Int32Array(BATCH);
  for (let i = 0; i < BATCH; i++) {
    if (drawn.length && i % 2) {
      const [pixels, digit] = drawn[Math.floor(Math.random() * drawn.length)];
      image.set(pixels, 64 * i);
      label[i] = digit;
    } else {
      const k = Math.floor(Math.random() * data.labels.length);
      image.set(data.images[k].map((x) => x / 16), 64 * i);
      label[i] = data.labels[k];
    }
  }
  return { image, label };
}

await report(async () => {
  const bundle = await load({ progress: (text) => report(() => text) });
  const { train, classify, evaluate } = bundle.programs;
  const chart = bars();
  const statistics = element("div", {}, [statisticsTable(train)]);
  const accuracy = async () => {
    const known = { image: data.testImages.flat().map((x) => x / 16), label: data.testLabels };
    return (await evaluate.run(known)).accuracy[0];
  };
  const show = () =>
    report(async () => {
      const image = imageOf(area.canvas);
      if (image) chart.show([...(await classify.run({ image })).probability]);
    });
  const area = drawingArea(show);
  const learn = async (steps) => {
    const start = performance.now();
    let loss;
    for (let i = 1; i <= steps; i++) loss = await train.run(batch(), { read: i === steps ? ["loss"] : [] });
    statistics.replaceChildren(statisticsTable(train, (1e3 * steps) / (performance.now() - start)));
    await show();
    return `loss ${loss.loss[0].toFixed(4)}; ${(100 * (await accuracy())).toFixed(1)} % of the test images are right`;
  };
  const button = (text, action) => {
    const made = element("button", { textContent: text });
    made.addEventListener("click", () => report(action));
    return made;
  };
  const labels = Array.from({ length: 10 }, (_, digit) =>
    button(String(digit), async () => {
      const image = imageOf(area.canvas);
      if (!image) return "draw a digit first";
      drawn.push([image, digit]);
      const text = await learn(20);
      return `${drawn.length} of your digits are in the training data; ${text}`;
    }),
  );
  root.append(
    element("p", { textContent: "Draw with the mouse or a finger. The network runs and learns on your GPU, in this page." }),
    element("div", { className: "row" }, [area.canvas, chart.element]),
    button("Clear", () => area.clear()),
    button("Train 200 steps", () => learn(200)),
    button("Save the weights", async () => download(await bundle.checkpoint(), "digits.safetensors")),
    element("p", { textContent: "Is it wrong? Say which digit it is, and the network learns it:" }),
    element("div", { className: "labels" }, labels),
    statistics,
  );
  window.polyhal = bundle;
  bundle.lost.then((text) => report(() => { throw new Error(text); }));
  return `ready after ${(bundle.statistics.loadMs / 1e3).toFixed(1)} s; ${(100 * (await accuracy())).toFixed(1)} % of the test images are right`;
});
