// Runs an exported detector with onnxruntime-web, from files of this folder alone.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";

ort.env.wasm.wasmPaths = new URL("./node_modules/onnxruntime-web/dist/", import.meta.url).href;
ort.env.wasm.numThreads = 1; // several threads need a server that isolates the page

const status = document.querySelector("#status");
let detector = null;

// onnxruntime-web shows no metadata. An ONNX file is a protobuf message: fields one after another, of which number 14
// is an entry of the metadata with a key (1) and a value (2). This yields [number, content] of fields that have a length.
function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  while (at < bytes.length) {
    const tag = varint();
    const kind = tag % 8;
    if (kind === 2) {
      const length = varint();
      yield [Math.floor(tag / 8), bytes.subarray(at, at + length)];
      at += length;
    } else if (kind === 0) varint();
    else if (kind === 1) at += 8;
    else if (kind === 5) at += 4;
    else throw new Error("this is no ONNX file");
  }
}

function readAbout(bytes) {
  const text = (content) => new TextDecoder().decode(content);
  for (const [number, content] of fields(bytes)) {
    if (number !== 14) continue;
    const entry = Object.fromEntries(fields(content));
    if (text(entry[1]) === "shiftprism") return JSON.parse(text(entry[2]));
  }
  throw new Error("this file has no description of shiftprism: make one with shiftprism export");
}

async function openDetector(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const about = readAbout(bytes);
  const session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
  return { about, session };
}

// uint8 (1, C, H, W): the pixels as they are, or in the one size that the file takes
async function readPixels(file, takes) {
  const bitmap = await createImageBitmap(file);
  const width = takes.width ?? bitmap.width, height = takes.height ?? bitmap.height;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const area = width * height, pixels = new Uint8Array(takes.channels * area);
  for (let place = 0; place < area; place++) {
    const [red, green, blue] = data.subarray(4 * place, 4 * place + 3);
    if (takes.channels === 3) for (let c = 0; c < 3; c++) pixels[c * area + place] = data[4 * place + c];
    else pixels[place] = Math.round(0.299 * red + 0.587 * green + 0.114 * blue);
  }
  return new ort.Tensor("uint8", pixels, [1, takes.channels, height, width]);
}

async function judge({ about, session }, file) {
  const found = await session.run({ images: await readPixels(file, about.input) });
  const label = Number(found.label.data[0]);
  const p = (name) => found[name].data[0].toPrecision(3);
  return [
    about.names[label],
    `${(100 * found.probabilities.data[label]).toFixed(1)} %`,
    about.kinds[Number(found.kind.data[0])],
    ...["p_covariate", "p_concept", "p_combined"].map(p),
  ];
}

function addRow(file, cells) {
  document.querySelector("table").hidden = false;
  const row = document.querySelector("tbody").insertRow();
  const picture = new Image();
  picture.src = URL.createObjectURL(file);
  picture.alt = file.name;
  row.insertCell().append(picture);
  for (const cell of cells) row.insertCell().textContent = cell;
}

document.querySelector("#model").addEventListener("change", async ({ target }) => {
  try {
    status.textContent = "Opening …";
    detector = await openDetector(target.files[0]);
    const { about } = detector;
    status.textContent = `${about.names.length} classes, ${100 * about.false_alarm} % false alarms. Inside: ${about.input.inside}.`;
    document.querySelector("#images").disabled = false;
  } catch (error) {
    status.textContent = `Not opened: ${error.message}`;
  }
});

document.querySelector("#images").addEventListener("change", async ({ target }) => {
  for (const file of target.files) {
    try {
      addRow(file, await judge(detector, file));
    } catch (error) {
      addRow(file, [`not judged: ${error.message}`]);
    }
  }
  status.textContent = `${document.querySelectorAll("tbody tr").length} images judged.`;
});
