// Parts of pages: elements, the line of status, and the table of sizes and times.

/** An HTML element with properties and children. */
export function element(name, properties = {}, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Call an action, and show the text that it returns, or its error, in the line of status. */
export async function report(action) {
  const status = document.getElementById("status");
  try {
    const text = await action();
    status.className = "";
    if (typeof text === "string") status.textContent = text;
  } catch (error) {
    status.className = "error";
    status.textContent = error.message;
    console.error(error);
  }
}

/** A number of bytes as text. */
export const size = (bytes) => (bytes < 2 ** 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`);

/** Sizes and times of a program; `perSecond` counts `unit`. */
export function statisticsTable(program, perSecond = null, unit = "runs") {
  const { bytes, kernels, launches, compileMs, firstRunMs } = program.statistics;
  const rows = [
    ["state", size((bytes.state ?? 0) + (bytes.constant ?? 0))],
    ["other memory", size((bytes.temporary ?? 0) + (bytes.input ?? 0) + (bytes.output ?? 0))],
    ["kernels, launches of a run", `${kernels}, ${launches}`],
    ["compiled in", `${(compileMs / 1e3).toFixed(2)} s`],
  ];
  if (firstRunMs !== null) rows.push(["first run", `${firstRunMs.toFixed(0)} ms`]);
  if (perSecond !== null) rows.push([`${unit} per second`, perSecond.toPrecision(3)]);
  const cells = ([k, v]) => element("tr", {}, [element("th", { textContent: k }), element("td", { textContent: v })]);
  return element("table", { className: "statistics" }, rows.map(cells));
}

/** Let the user save a Blob as a file. */
export function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
