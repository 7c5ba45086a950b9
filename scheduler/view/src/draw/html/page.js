"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);

// What a bar's list holds.
const [HUE, NAME, TEXTS, START, END, SHADE, CRITICAL, GAP, HELD] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
// What a gap's list holds.
const [SINCE, MADE, REASON, ROW, AT] = [0, 1, 2, 3, 4];

// Pixels.
const LEFT = 70, BAR = 24, MARK = 3, MEMORY = 26, BETWEEN = 9, AXIS = 22, RIGHT = 12;

const longest = Math.max(...data.pictures.map((picture) => picture.makespan)) || 1;
const mostMemory = Math.max(0, ...data.pictures.flatMap((picture) => picture.rows.flatMap((row) => [row.peak || 0, row.limit || 0])));
// The part of time that is seen, as shares of the whole.
const view = { from: 0, to: 1 };
let hover = null;

const views = data.pictures.map((picture) => {
  const section = document.createElement("section");
  const canvas = document.createElement("canvas");
  section.innerHTML = "<h1></h1><p></p>";
  section.querySelector("h1").textContent = picture.title;
  section.querySelector("p").textContent = picture.facts;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", picture.title + ". " + picture.facts);
  section.append(canvas);
  find("pictures").append(section);
  return { picture, canvas };
});

const on = (id) => find(id).checked;
const hasMemory = (picture) => mostMemory > 0 && picture.rows.some((row) => row.peak !== null);
const rowHeight = (picture) => BAR + MARK + (on("memory") && hasMemory(picture) ? MEMORY : 0) + BETWEEN;
const whole = (picture) => (on("own") ? picture.makespan || 1 : longest);

function figure(value) {
  return String(Number(value.toPrecision(6)));
}

function mix(hue, shade) {
  const [dark, light] = data.colours[hue].ends;
  return dark.map((channel, at) => Math.round(channel + shade * (light[at] - channel)));
}

const inks = new Map();
function inkOf(hue, shade) {
  const key = hue + shade;
  if (!inks.has(key)) {
    const [r, g, b] = mix(hue, shade);
    const linear = (c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const white = 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05;
    inks.set(key, { fill: `rgb(${r},${g},${b})`, text: white ? "#fff" : "#000" });
  }
  return inks.get(key);
}

// Small tiles that repeat: the second sign beside colour.
function tile(draw) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  const pen = canvas.getContext("2d");
  pen.strokeStyle = pen.fillStyle = "rgba(0,0,0,.3)";
  pen.lineWidth = 1.6;
  draw(pen);
  return pen.createPattern(canvas, "repeat");
}
const stroke = (...points) => (pen) => {
  pen.beginPath();
  points.forEach(([x0, y0, x1, y1]) => { pen.moveTo(x0, y0); pen.lineTo(x1, y1); });
  pen.stroke();
};
const rising = [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]], falling = [[-2, 6, 2, 10], [-2, -2, 10, 10], [6, -2, 10, 2]];
const hatchings = {
  I: tile(stroke(...rising)), B: tile(stroke(...falling)), P: tile(stroke(...rising, ...falling)),
  W: tile((pen) => [[2, 2], [6, 6]].forEach(([x, y]) => pen.fillRect(x - 1, y - 1, 2, 2))),
};
const dots = tile((pen) => { pen.fillStyle = "rgba(90,90,150,.75)"; [[2, 2], [6, 6], [2, 6], [6, 2]].forEach(([x, y]) => pen.fillRect(x - 1, y - 1, 1.6, 1.6)); });
const cross = tile((pen) => { pen.strokeStyle = "rgba(194,24,91,.8)"; pen.lineWidth = 1; stroke(...rising, ...falling)(pen); });

function step(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= least * (1 - 1e-9)) || power * 10;
}

function draw({ picture, canvas }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const width = canvas.clientWidth, height = AXIS + rowHeight(picture) * picture.rows.length;
  const dense = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  const room = width - LEFT - RIGHT, from = view.from * whole(picture), to = view.to * whole(picture);
  const scale = room / (to - from), x = (time) => LEFT + (time - from) * scale;
  const page = { pen, colour, x, scale, from, to, width, height };
  axis(page, picture);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, room + 1, height);
  pen.clip();
  picture.rows.forEach((row, number) => drawRow(page, picture, row, AXIS + number * rowHeight(picture)));
  if (on("critical")) criticalHops(page, picture);
  if (hover && hover.picture === picture) highlight(page, picture);
  pen.restore();
  pen.textAlign = "right";
  picture.rows.forEach((row, number) => {
    const y = AXIS + number * rowHeight(picture);
    pen.fillStyle = colour("front");
    pen.font = "12px DejaVu Sans, Verdana, sans-serif";
    pen.fillText(row.name, LEFT - 8, y + BAR / 2 + 4);
    if (on("memory") && row.peak !== null) {
      pen.fillStyle = colour("soft");
      pen.font = "9px DejaVu Sans, Verdana, sans-serif";
      pen.fillText(`peak ${figure(row.peak)}` + (row.limit === null ? "" : ` of ${figure(row.limit)}`), LEFT - 8, y + BAR + MARK + MEMORY - 4);
    }
  });
}

function axis({ pen, colour, x, scale, from, to, height }, picture) {
  const by = step(75 / scale), decimals = Math.max(0, -Math.floor(Math.log10(by)));
  pen.font = "10px DejaVu Sans, Verdana, sans-serif";
  pen.textAlign = "center";
  for (let number = Math.ceil(from / by - 1e-9); number * by <= to; number++) {
    const at = x(number * by);
    pen.fillStyle = colour("line");
    pen.fillRect(Math.round(at), AXIS - 5, 1, height);
    pen.fillStyle = colour("soft");
    pen.fillText((number * by).toFixed(Math.min(decimals, 12)) + (number === Math.ceil(from / by - 1e-9) ? " " + picture.unit : ""), at, 12);
  }
}

// The first bar that ends after a time.
function firstAfter(bars, time) {
  let [low, high] = [0, bars.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars[middle][END] > time) high = middle; else low = middle + 1;
  }
  return low;
}

function drawRow(page, picture, row, y) {
  const { pen, colour, x, scale, from, to } = page;
  if (!row.bars.length) return;
  pen.fillStyle = colour("idle");
  pen.fillRect(x(0), y, (row.bars[row.bars.length - 1][END]) * scale, BAR);
  for (let at = firstAfter(row.bars, from); at < row.bars.length; at++) {
    const bar = row.bars[at], gap = bar[GAP];
    if ((gap ? gap[SINCE] : bar[START]) > to) break;
    if (gap) drawGap(page, bar, y);
    drawBar(page, bar, y);
  }
  if (on("memory") && row.peak !== null && mostMemory > 0) drawMemory(page, row, y + BAR + MARK + 2);
}

function drawGap({ pen, x }, bar, y) {
  const memory = bar[GAP][REASON] === "memory", from = memory ? bar[GAP][SINCE] : bar[GAP][MADE];
  if (bar[START] <= from) return;
  pen.fillStyle = memory ? cross : dots;
  pen.fillRect(x(from), y + 3, x(bar[START]) - x(from), BAR - 6);
}

function drawBar({ pen, colour, x }, bar, y) {
  const left = x(bar[START]), width = x(bar[END]) - left, line = width > 4 ? 0.8 : 0;
  const ink = inkOf(bar[HUE], bar[SHADE]);
  pen.fillStyle = ink.fill;
  pen.fillRect(left, y, Math.max(width - line, 0.4), BAR);
  if (on("hatching") && hatchings[bar[HUE]] && width > 5) {
    pen.fillStyle = hatchings[bar[HUE]];
    pen.fillRect(left, y, width - line, BAR);
  }
  if (on("critical") && bar[CRITICAL]) {
    pen.fillStyle = colour("mark");
    pen.fillRect(left, y + BAR, Math.max(width, 0.6), MARK);
  }
  if (width < 9) return;
  pen.fillStyle = ink.text;
  pen.textAlign = "center";
  const lines = bar[TEXTS].length, size = lines > 1 ? 9.5 : 11, middle = (Math.max(left, LEFT) + Math.min(left + width, pen.canvas.clientWidth - RIGHT)) / 2;
  pen.font = size + "px DejaVu Sans, Verdana, sans-serif";
  bar[TEXTS].forEach((text, at) => {
    const letter = text.search(/[A-Z]/);
    const shown = [text, text.slice(letter), text.slice(letter + 1)].find((one) => one.length * size * 0.72 + 2 <= width);
    if (shown) pen.fillText(shown, middle, y + BAR * (at + 0.5) / lines + size * 0.36);
  });
}

function drawMemory({ pen, colour, x, from, to }, row, top) {
  const height = MEMORY - 5, bottom = top + height, y = (held) => bottom - height * held / mostMemory;
  const first = Math.max(0, firstAfter(row.bars, from) - 1);
  let [end, left] = first > 0 ? [row.bars[first - 1][END], row.bars[first - 1][HELD][1]] : [0, 0];
  const begin = x(end);
  pen.beginPath();
  pen.moveTo(begin, bottom);
  for (let at = first; at < row.bars.length && end <= to; at++) {
    const bar = row.bars[at], during = y(bar[HELD][0]);
    if (bar[START] > end) { pen.lineTo(x(end), y(left)); pen.lineTo(x(bar[START]), y(left)); }
    pen.lineTo(x(bar[START]), during);
    pen.lineTo(x(bar[END]), during);
    [end, left] = [bar[END], bar[HELD][1]];
  }
  const last = x(end);
  pen.lineTo(last, y(left));
  pen.strokeStyle = colour("curve");
  pen.lineWidth = 1;
  pen.stroke();
  pen.lineTo(last, bottom);
  pen.closePath();
  pen.globalAlpha = 0.6;
  pen.fillStyle = colour("area");
  pen.fill();
  pen.globalAlpha = 1;
  if (row.limit !== null) {
    pen.strokeStyle = colour("mark");
    pen.setLineDash([5, 3]);
    pen.beginPath(); pen.moveTo(begin, y(row.limit)); pen.lineTo(last, y(row.limit)); pen.stroke();
    pen.setLineDash([]);
  }
}

// A line wherever the critical path goes to another rank.
function criticalHops({ pen, colour, x, from, to }, picture) {
  pen.strokeStyle = colour("mark");
  pen.lineWidth = 1.2;
  pen.beginPath();
  const y = (row) => AXIS + row * rowHeight(picture) + BAR;
  picture.rows.forEach((row, number) => row.bars.forEach((bar) => {
    if (!bar[CRITICAL] || !bar[GAP]) return;
    const made = picture.rows[bar[GAP][ROW]].bars[bar[GAP][AT]][END];
    if (bar[START] < from || made > to) return;
    pen.moveTo(x(made), y(bar[GAP][ROW]) + MARK);
    pen.lineTo(x(bar[START]), y(number));
  }));
  pen.stroke();
}

// What the pointer is on, and what that waited for.
function highlight({ pen, colour, x }, picture) {
  const outline = (row, at) => {
    const bar = picture.rows[row].bars[at], y = AXIS + row * rowHeight(picture);
    pen.strokeRect(x(bar[START]) + 1, y + 1, Math.max(x(bar[END]) - x(bar[START]) - 2, 1), BAR - 2);
  };
  pen.strokeStyle = colour("front");
  pen.lineWidth = 2;
  outline(hover.row, hover.at);
  const gap = picture.rows[hover.row].bars[hover.at][GAP];
  if (gap) {
    pen.setLineDash([4, 2]);
    outline(gap[ROW], gap[AT]);
    pen.setLineDash([]);
  }
}

function explain(picture, number, at) {
  const row = picture.rows[number], bar = row.bars[at], unit = picture.unit, gap = bar[GAP];
  const lines = [`${bar[NAME]} on ${row.name}`, `${figure(bar[START])} to ${figure(bar[END])} ${unit}, takes ${figure(bar[END] - bar[START])} ${unit}`];
  if (gap) {
    const other = picture.rows[gap[ROW]], made = figure(gap[MADE]);
    const on = `${other.bars[gap[AT]][NAME]} on ${other.name}`;
    const why = {
      memory: `the memory limit kept its next F out; it went on when ${on} was done`,
      latency: `${on} was done, its message was on its way`,
      dependency: `it waited for ${on}, done at ${made} ${unit}` + (bar[START] > gap[MADE] ? ", and for its message" : ""),
    };
    lines.push(`idle for ${figure(bar[START] - gap[SINCE])} ${unit} before: ${why[gap[REASON]]}`);
  }
  if (bar[HELD]) lines.push(`memory ${figure(bar[HELD][0])}, after it ${figure(bar[HELD][1])}` + (row.limit === null ? "" : `, limit ${figure(row.limit)}`));
  if (bar[CRITICAL]) lines.push("on the critical path");
  return lines.join("\n");
}

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; views.forEach(draw); });
}

// Makes what is seen `factor` times as long; the share `at` of it stays where it is.
function zoom(factor, at) {
  const length = Math.min(1, Math.max((view.to - view.from) * factor, 1e-5));
  move(view.from + at * (view.to - view.from - length), length);
}
function move(from, length) {
  view.from = Math.min(Math.max(from, 0), 1 - length);
  view.to = view.from + length;
  redraw();
}
const pan = (share) => move(view.from + share * (view.to - view.from), view.to - view.from);
const showAll = () => move(0, 1);

views.forEach(({ picture, canvas }) => {
  const share = (event) => (event.offsetX - LEFT) / (canvas.clientWidth - LEFT - RIGHT);
  let held = null;
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.002), Math.min(Math.max(share(event), 0), 1));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      pan((event.deltaX || event.deltaY) / canvas.clientWidth);
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { held = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("dblclick", showAll);
  canvas.addEventListener("pointerleave", () => { hover = null; find("tip").hidden = true; redraw(); });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) {
      pan((held - event.clientX) / (canvas.clientWidth - LEFT - RIGHT));
      held = event.clientX;
      return;
    }
    point(picture, event, view.from + share(event) * (view.to - view.from));
  });
});

// Shows what lies at a share of time under the pointer: a bar, or the idle time before it.
function point(picture, event, share) {
  const number = Math.floor((event.offsetY - AXIS) / rowHeight(picture)), row = picture.rows[number], tip = find("tip");
  const time = share * whole(picture), at = row && event.offsetX >= LEFT ? firstAfter(row.bars, time) : -1, bar = row && row.bars[at];
  const hit = bar && (bar[START] <= time || bar[GAP]);
  const was = hover;
  hover = hit ? { picture, row: number, at } : null;
  tip.hidden = !hit;
  if (hit) {
    tip.textContent = explain(picture, number, at);
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
  }
  if (was !== hover && !(was && hover && was.row === hover.row && was.at === hover.at)) redraw();
}

function legend() {
  const hues = new Set(data.pictures.flatMap((picture) => picture.rows.flatMap((row) => row.bars.map((bar) => bar[HUE]))));
  const reasons = new Set(data.pictures.flatMap((picture) => picture.rows.flatMap((row) => row.bars.filter((bar) => bar[GAP]).map((bar) => bar[GAP][REASON]))));
  const shades = data.pictures.some((picture) => picture.rows.some((row) => row.bars.some((bar) => bar[SHADE] > 0)));
  const late = data.pictures.some((picture) => picture.rows.some((row) => row.bars.some((bar) => bar[GAP] && bar[GAP][REASON] !== "memory" && bar[START] > bar[GAP][MADE])));
  const key = (background, text) => {
    const span = document.createElement("span"), sample = document.createElement("i");
    span.className = "key";
    sample.style.background = background;
    span.append(sample, text);
    find("legend").append(span);
  };
  [..."FIWBPX"].filter((hue) => hues.has(hue)).forEach((hue) => key(inkOf(hue, 0).fill, data.colours[hue].meaning));
  if (shades) {
    const first = hues.has("F") ? "F" : [...hues][0];
    key(`linear-gradient(90deg, ${inkOf(first, 0).fill}, ${inkOf(first, 1).fill})`, "a rank's first to last stage, or the way down and up");
  }
  if (data.pictures.some((picture) => picture.rows.some((row) => row.bars.some((bar) => bar[CRITICAL])))) key("linear-gradient(transparent 65%, var(--mark) 65%)", "critical path");
  if (reasons.has("dependency")) key("var(--idle)", "waits for another rank");
  if (late) key("radial-gradient(circle at 2px 2px, rgb(90,90,150) 1px, transparent 1.2px) 0 0 / 4px 4px", "in flight");
  if (reasons.has("memory")) key("repeating-linear-gradient(45deg, rgba(194,24,91,.8) 0 1px, transparent 1px 4px)", "blocked by the memory limit");
}

legend();
find("apart").hidden = data.pictures.length < 2;
// Costs in units of their own and measured seconds: on one axis the shorter would be a line.
find("own").checked = data.pictures.some((picture) => picture.makespan * 20 < longest);
find("in").onclick = () => zoom(0.5, 0.5);
find("out").onclick = () => zoom(2, 0.5);
find("all").onclick = showAll;
["critical", "memory", "hatching", "own"].forEach((id) => { find(id).onchange = redraw; });
find("theme").onclick = () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  redraw();
};
const keys = { "+": () => zoom(0.5, 0.5), "=": () => zoom(0.5, 0.5), "-": () => zoom(2, 0.5), 0: showAll, ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2) };
addEventListener("keydown", (event) => { if (keys[event.key] && !event.ctrlKey && !event.metaKey) keys[event.key](); });
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
redraw();
