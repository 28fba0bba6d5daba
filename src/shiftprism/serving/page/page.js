"use strict";
// One page on the HTTP interface that everyone has. Nothing is loaded from elsewhere.
const SVG = "http://www.w3.org/2000/svg";
const TOKEN = "shiftprism-token";
const KIND_WORDS = { "in-distribution": "as usual", covariate: "style has shifted", concept: "unknown content" };
const LEVEL_WORDS = { ok: "as usual", warning: "warning", alarm: "alarm" };
const state = { model: null, about: null, dots: [], statusText: "" };
const at = (id) => document.getElementById(id);

function make(parent, name, attributes = {}, text = "") {
  const element = name in { svg: 1, g: 1, circle: 1, rect: 1, path: 1, line: 1, text: 1 }
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  const value = await response.json().catch(() => ({}));
  if (response.status === 401) {
    at("access-wrong").textContent = token ? "This token is not valid." : "";
    if (at("access").hidden) { at("access").hidden = false; at("token").focus(); }
  }
  if (!response.ok) throw new Error(value.detail || `The service answered with status ${response.status}.`);
  return value;
}

const route = (word) => `/v1/models/${encodeURIComponent(state.model)}${word}`;
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const rounded = (p) => (p >= 0.0001 ? String(Number(p.toPrecision(2))) : p.toExponential(1));

// one image

async function send(files) {
  const images = [...files].filter((file) => file.type.startsWith("image/") || !file.type);
  at("trouble").textContent = "";
  if (!images.length) {
    at("trouble").textContent = "This is no image.";
    return;
  }
  const form = new FormData();
  for (const image of images) form.append("image", image, "image");
  at("answer").setAttribute("aria-busy", "true");
  try {
    const { predictions } = await ask(route("/predict"), { method: "POST", body: form });
    predictions.forEach((prediction, place) => show(prediction, images[place]));
  } catch (error) {
    at("trouble").textContent = error.message;
  } finally {
    at("answer").removeAttribute("aria-busy");
  }
}

function picture(parent, source, alt) {
  const image = make(parent, "img", { alt });
  const mark = () => image.classList.toggle("small", image.naturalWidth < 96);
  image.addEventListener("load", mark);
  image.src = source;
  return image;
}

function show(prediction, file) {
  if (prediction.error) {
    at("trouble").textContent = prediction.error.detail;
    return;
  }
  const answer = at("answer");
  const before = answer.querySelector(".answer");
  if (before) keep(before);
  const source = URL.createObjectURL(file);
  answer.replaceChildren();
  const box = make(answer, "div", { class: "answer", "data-kind": prediction.kind, "data-name": prediction.name });
  picture(box, source, "The image that was sent");
  const words = make(box, "div");
  make(words, "span", { class: `badge ${prediction.kind}` }, KIND_WORDS[prediction.kind]);
  make(words, "p", { class: "sentence" }, prediction.sentence);
  const body = make(make(words, "table"), "tbody");
  const rows = [
    ["class", prediction.name],
    [prediction.calibrated ? "confidence" : "score, uncalibrated", percent(prediction.confidence)],
    ["style is as unusual in", `${percent(prediction.p_covariate)} of known images`],
    ["content is as unusual in", `${percent(prediction.p_concept)} of known images`],
    ["both together", `p = ${rounded(prediction.p_combined)}`],
  ];
  for (const [name, value] of rows) {
    const row = make(body, "tr");
    make(row, "th", { scope: "row" }, name);
    make(row, "td", {}, value);
  }
  offerTruth(words, prediction);
  state.dots.push(prediction);
  if (state.dots.length > 200) state.dots.shift();
  drawPlane();
}

function keep(box) {
  const item = document.createElement("li");
  item.append(box.querySelector("img"));
  item.firstChild.alt = "";
  make(item, "strong", {}, box.dataset.name);
  make(item, "br");
  make(item, "span", { class: `badge ${box.dataset.kind}` }, KIND_WORDS[box.dataset.kind]);
  at("earlier").prepend(item);
  while (at("earlier").children.length > 24) {
    URL.revokeObjectURL(at("earlier").lastChild.querySelector("img").src);
    at("earlier").lastChild.remove();
  }
}

function offerTruth(parent, prediction) {
  const form = make(parent, "form", { class: "truth" });
  const label = make(form, "label", {}, "It really is ");
  const select = make(label, "select");
  make(select, "option", { value: "" }, "…");
  state.about.names.forEach((name, number) => make(select, "option", { value: number }, name));
  make(select, "option", { value: "none" }, "none of these");
  make(form, "button", { type: "submit" }, "report");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (select.value === "") return;
    const label = select.value === "none" ? null : Number(select.value);
    try {
      const body = JSON.stringify({ labels: [{ id: prediction.id, label }] });
      await ask(route("/labels"), { method: "POST", body, headers: { "Content-Type": "application/json" } });
      form.replaceChildren(document.createTextNode("Thank you: it is stored."));
    } catch (error) {
      at("trouble").textContent = error.message;
    }
  });
}

// the plane of style and concept

function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(share * (sorted.length - 1))))];
}

function scale(values, more, low, high) {
  const sorted = [...values].sort((a, b) => a - b);
  let [least, most] = [quantile(sorted, 0.005), quantile(sorted, 0.995)];
  const spread = most - least || 1;
  // what lies far outside is drawn at the edge, so that one image does not squeeze the cloud into a point
  least = Math.max(Math.min(least, ...more), least - 1.5 * spread) - 0.06 * spread;
  most = Math.min(Math.max(most, ...more), most + 1.5 * spread) + 0.06 * spread;
  return (value) => low + ((high - low) * (Math.min(Math.max(value, least), most) - least)) / (most - least);
}

function mark(parent, kind, x, y, size, classes) {
  const names = { class: `${kind} ${classes}` };
  if (kind === "covariate") {
    return make(parent, "rect", { ...names, x: x - size, y: y - size, width: 2 * size, height: 2 * size });
  }
  if (kind === "concept") {
    const d = `M${x} ${y - 1.3 * size}L${x + 1.2 * size} ${y + size}H${x - 1.2 * size}Z`;
    return make(parent, "path", { ...names, d });
  }
  return make(parent, "circle", { ...names, cx: x, cy: y, r: size });
}

function drawPlane() {
  const svg = at("plane");
  const points = state.about.points;
  svg.replaceChildren();
  make(svg, "line", { class: "axis", x1: 24, y1: 270, x2: 350, y2: 270 });
  make(svg, "line", { class: "axis", x1: 24, y1: 10, x2: 24, y2: 270 });
  make(svg, "text", { x: 350, y: 290, "text-anchor": "end" }, "usual style →");
  make(svg, "text", { x: 24, y: 290 }, "← shifted style");
  make(svg, "text", { x: 14, y: 14, transform: "rotate(-90 14 14)", "text-anchor": "end" }, "known content →");
  make(svg, "text", { x: 14, y: 270, transform: "rotate(-90 14 270)" }, "← unknown content");
  if (!points.length) return;
  const x = scale(points.map((p) => p[0]), state.dots.map((d) => d.style), 30, 346);
  const y = scale(points.map((p) => p[1]), state.dots.map((d) => d.concept), 264, 14);
  for (const [style, concept] of points) {
    make(svg, "circle", { class: "cloud", cx: x(style).toFixed(1), cy: y(concept).toFixed(1), r: 2 });
  }
  state.dots.forEach((dot, place) => {
    const newest = place === state.dots.length - 1;
    mark(svg, dot.kind, x(dot.style), y(dot.concept), newest ? 7 : 4, newest ? "dot newest" : "dot");
  });
  const last = state.dots.at(-1);
  at("plane-text").textContent = last
    ? `The large mark: ${KIND_WORDS[last.kind]}. Its style is more unusual than that of ` +
      `${percent(1 - last.p_covariate)} of known images, its content than that of ${percent(1 - last.p_concept)}. ` +
      "Circles: as usual; squares: style; triangles: content."
    : "No image yet.";
}

// the stream

function drawAxes(svg, end, ticks, y) {
  svg.replaceChildren();
  for (const [value, text] of ticks) {
    make(svg, "line", { class: "axis", x1: 40, x2: 350, y1: y(value), y2: y(value) });
    make(svg, "text", { x: 34, y: y(value) + 4, "text-anchor": "end" }, text);
  }
  make(svg, "text", { x: 40, y: 212 }, "0");
  make(svg, "text", { x: 350, y: 212, "text-anchor": "end" }, `${end.toLocaleString("en")} images`);
}

const path = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function drawChange(svg, status, x) {
  if (status.since === null) return;
  const place = x(status.since);
  make(svg, "line", { class: "change", x1: place, x2: place, y1: 8, y2: 194 });
  const end = place > 250;
  make(svg, "text", { class: "change-text", x: place + (end ? -5 : 5), y: 20, "text-anchor": end ? "end" : "start" }, "change");
}

function drawStream(status) {
  const windows = status.history;
  const end = Math.max(status.observations, 1);
  const x = (number) => 40 + (310 * number) / end;
  // from the first image to the last: a stream of one window has a line, too
  const line = (value) => windows.flatMap((w, place) => {
    const points = [[x(w.first + w.images / 2), value(w)]];
    if (place === 0) points.unshift([x(w.first), value(w)]);
    if (place === windows.length - 1) points.push([x(w.first + w.images), value(w)]);
    return points;
  });
  const y = (share) => 194 - 184 * share;
  const accuracy = at("accuracy");
  drawAxes(accuracy, status.observations, [[0, "0"], [0.5, "½"], [1, "1"]], y);
  if (windows.length) {
    const band = [...line((w) => y(w.high)), ...line((w) => y(w.low)).reverse()];
    make(accuracy, "path", { class: "band", d: `${path(band)}Z` });
    make(accuracy, "path", { class: "line known", d: path(line((w) => y(w.value))) });
    for (const kind of ["covariate", "concept"]) {
      make(accuracy, "path", { class: `line ${kind}`, d: path(line((w) => y(w[kind]))) });
    }
  }
  drawChange(accuracy, status, x);
  const text = at("accuracy-text");
  text.replaceChildren();
  const known = status.accuracy && status.trust ? `${percent(status.accuracy.value)} estimated right` : "accuracy unknown";
  const shares = { known: status.calibrated ? known : "mean score, uncalibrated", covariate: "flagged: style", concept: "flagged: content" };
  for (const [key, words] of Object.entries(shares)) {
    make(text, "span", { class: `key ${key}` });
    text.append(`${words}  `);
  }
  const { count, right } = status.labelled;
  if (count) make(text, "span", {}, `${right} of ${count} with a known truth are right.`);
  const evidence = at("evidence");
  const alarm = Math.log10(status.threshold);
  const top = Math.min(Math.max(2 * alarm, ...windows.flatMap((w) => [w.log10_e_covariate, w.log10_e_concept])), 12);
  const bottom = -2;
  const height = (value) => 194 - (184 * (Math.min(Math.max(value, bottom), top) - bottom)) / (top - bottom);
  drawAxes(evidence, status.observations, [[0, "1"], [alarm, status.threshold.toLocaleString("en")]], height);
  make(evidence, "line", { class: "threshold", x1: 40, x2: 350, y1: height(alarm), y2: height(alarm) });
  for (const kind of ["covariate", "concept"]) {
    const points = line((w) => height(w[`log10_e_${kind}`]));
    if (points.length) make(evidence, "path", { class: `line ${kind}`, d: path(points) });
  }
  drawChange(evidence, status, x);
  const keys = at("evidence-text");
  keys.replaceChildren();
  for (const [key, words] of [["covariate", "of a shift of style"], ["concept", "of a shift of content"]]) {
    make(keys, "span", { class: `key ${key}` });
    keys.append(`${words}  `);
  }
}

async function follow() {
  try {
    const status = await ask(route("/status"));
    const level = at("level");
    level.className = `badge ${status.level}`;
    level.textContent = LEVEL_WORDS[status.level];
    if (status.sentence !== state.statusText) {  // a screen reader speaks when something is new
      state.statusText = status.sentence;
      at("status").textContent = status.sentence;
    }
    drawStream(status);
  } catch (error) {
    at("level").className = "badge";
    at("level").textContent = "unknown";
    at("status").textContent = error.message;
    state.statusText = "";
  }
}

// the start

async function choose(name) {
  state.model = name;
  state.dots = [];
  state.about = await ask(route(""));
  const { height, width, channels } = state.about;
  const size = height && width ? `${width} × ${height} pixels` : "any size";
  at("takes").textContent = `Images of ${size}${channels === 1 ? ", read as grey" : ""}.`;
  drawPlane();
  await follow();
}

async function begin() {
  try {
    const { models } = await ask("/v1/models");
    at("access").hidden = true;
    at("model").replaceChildren();
    for (const name of models) make(at("model"), "option", { value: name }, name);
    at("choice").hidden = models.length < 2;
    await choose(models[0]);
    at("trouble").textContent = "";
  } catch (error) {
    at("trouble").textContent = at("access").hidden ? error.message : "";
  }
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value.trim());
  at("token").value = "";
  begin();
});
at("model").addEventListener("change", () => choose(at("model").value));
for (const input of [at("file"), at("camera")]) {
  input.addEventListener("change", () => {
    if (input.files.length) send(input.files);
    input.value = "";
  });
}
const drop = at("drop");
document.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
document.addEventListener("dragleave", () => drop.classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (event.dataTransfer.files.length) send(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) send(event.clipboardData.files);
});
setInterval(() => { if (state.about && !document.hidden) follow(); }, 2000);
begin();
