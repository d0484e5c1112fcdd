// Charts of series over a common x, drawn as SVG: lines, raw bands and points, with a cursor that all charts share.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, parent = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") element.style.cssText = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// --- Numbers for people.

function format(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
    const [mantissa, exponent] = value.toExponential(Math.min(digits - 1, 3)).split("e");
    return `${Number(mantissa)}e${Number(exponent)}`;
  }
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 8 });
}

const whole = value => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
const percent = (value, digits = 1) => value === null ? "–" : `${(100 * value).toFixed(digits)} %`;

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 9.995e-4) return `${format(1e6 * seconds, 3)} µs`;
  if (seconds < 1) return `${format(1e3 * seconds, 3)} ms`;
  if (seconds < 60) return `${format(seconds, 3)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([length]) => seconds >= length);
  const [length, name] = units[first], [next, smaller] = units[first + 1];
  const count = Math.floor(seconds / length), rest = Math.floor((seconds - count * length) / next);
  return rest > 0 ? `${count} ${name} ${rest} ${smaller}` : `${count} ${name}`;
}

// --- Scales.

function nice_step(span, count) {
  const raw = span / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find(f => f * power >= raw * 0.999);
}

function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const step = nice_step(high - low, count), values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) values.push(i * step);
  return values;
}

const kTimes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
function time_ticks(high, count) {
  if (high < count) return ticks(0, high, count);
  const step = kTimes.find(s => high / s <= count) ?? nice_step(high, count);
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
}

function log_ticks(low, high) {
  const values = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p)
    for (const f of high / low > 300 ? [1] : [1, 2, 5]) values.push(f * 10 ** p);
  return values.filter(v => v >= low * 0.999 && v <= high * 1.001);
}

// --- The tip that follows the pointer.

const tip = {
  show(event, head, rows) {
    const box = document.getElementById("tip");
    box.replaceChildren(html("div", { class: "head" }, head));
    if (rows.length > 0) {
      const table = html("table");
      for (const [color, name, value] of rows) {
        const key = html("td");
        if (color) key.append(html("span", { class: "swatch", style: `background:${color}` }));
        key.append(name);
        table.append(html("tr", {}, key, html("td", { class: "number" }, value)));
      }
      box.append(table);
    }
    box.hidden = false;
    const width = box.offsetWidth, height = box.offsetHeight, gap = 16;
    const left = event.clientX + gap + width > innerWidth ? event.clientX - gap - width : event.clientX + gap;
    const top = Math.min(event.clientY + gap, innerHeight - height - 6);
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, top)}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

// Exponentially weighted mean over neighbours on both sides. `amount` in [0, 1] is the reach; 1 means a twentieth of
// all points.
function smoothed(values, amount) {
  const reach = amount * amount * values.length / 20;
  if (reach < 0.5) return values;
  const keep = Math.exp(-1 / reach), sums = values.map(() => 0), weights = values.map(() => 0);
  for (const step of [1, -1]) {
    let sum = 0, weight = 0;
    for (let i = step > 0 ? 0 : values.length - 1; i >= 0 && i < values.length; i += step) {
      sum *= keep;
      weight *= keep;
      sums[i] += sum;
      weights[i] += weight;
      if (values[i] === null) continue;
      sum += values[i];
      weight += 1;
    }
  }
  return values.map((value, i) => value === null ? null : (sums[i] + value) / (weights[i] + 1));
}

// Returns twice the 90th percentile, so that outliers do not flatten the rest.
function most_of(values) {
  const known = values.filter(v => v !== null).sort((a, b) => a - b);
  return known.length > 0 ? 2 * known[Math.floor(0.9 * (known.length - 1))] : Infinity;
}

// Returns the least and the greatest known value; [Infinity, -Infinity] if there is none.
function range(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (v === null || v === undefined) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return [low, high];
}

// Calls `draw` once the element has a width, and whenever that changes.
function on_resize(element, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(element.clientWidth - width) < 2) return;
    width = element.clientWidth;
    requestAnimationFrame(draw);
  }).observe(element);
}

// A chart draws itself into `host`, and again when `draw` is called or its width changes.
//   title, format, logarithmic, from_zero, robust (outliers may leave it), x: {values, format, time, ticks}
//   series: [{name, color, values | points: [{x, y}], low, high, raw, stairs, unnamed}]; `raw` is drawn pale in the
//   background, without values at the cursor
class Chart {
  static all = [];

  constructor(host, options) {
    this.options = options;
    this.host = host;
    this.legend = html("span", { class: "legend" });
    this.area = html("div");
    host.append(this.legend, html("h3", {}, options.title), this.area);
    Chart.all.push(this);
    on_resize(host, () => this.draw());
  }

  draw(changes = {}) {
    Object.assign(this.options, changes);
    const { title, x, series, logarithmic, from_zero } = this.options;
    this.width = this.host.clientWidth;
    const width = Math.max(200, this.width), height = 210;
    const box = { left: 52, right: width - 8, top: 8, bottom: height - 22 };
    this.box = box;
    this.area.replaceChildren();
    this.legend.replaceChildren(...series.filter(s => !s.unnamed).map(s =>
      html("span", { class: "key" }, html("span", { class: "swatch", style: `background:${s.color}` }), s.name)));
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title }, this.area);

    const [least, x_high] = range([x.values.at(0), x.values.at(-1), ...series.flatMap(s => (s.points ?? []).map(p => p.x))]);
    const x_low = x.time ? 0 : least;
    const drawn = series.flatMap(s => [...(s.points ? s.points.map(p => p.y) : s.values), ...(s.raw ?? []), ...(s.low ?? []), ...(s.high ?? [])]);
    let [low, high] = range(logarithmic ? drawn.filter(v => v > 0) : drawn);
    if (low > high) {
      svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, root).textContent = "no values";
      return;
    }
    if (this.options.robust) high = Math.min(high, most_of(series.flatMap(s => s.raw ?? s.values)));
    if (from_zero) low = Math.min(0, low);
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    else if (!logarithmic) [low, high] = [from_zero && low === 0 ? 0 : low - 0.03 * (high - low), high + 0.05 * (high - low)];
    if (logarithmic && low <= 0) low = high / 10;

    const marks = logarithmic ? log_ticks(low, high) : ticks(low, high, 5);
    box.left = Math.max(52, 12 + 6.4 * Math.max(...marks.map(v => this.options.format(v).length)));

    const at_x = v => box.left + (x_high > x_low ? (v - x_low) / (x_high - x_low) : 0.5) * (box.right - box.left);
    const share = logarithmic ? v => Math.log(v / low) / Math.log(high / low) : v => (v - low) / (high - low);
    const at_y = v => box.bottom - share(v) * (box.bottom - box.top);
    this.at_x = at_x;

    for (const v of marks) {
      const y = at_y(v);
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y, y2: y }, root);
      svg("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, root).textContent = this.options.format(v);
    }
    const count = Math.max(2, Math.floor(width / 90));
    for (const v of x.ticks ? x.ticks(count) : x.time ? time_ticks(x_high, count) : ticks(x_low, x_high, count)) {
      if (!x.time && v !== Math.round(v)) continue;
      const anchor = at_x(v) > box.right - 20 ? "end" : "middle";
      svg("text", { x: at_x(v), y: height - 6, "text-anchor": anchor }, root).textContent = x.format(v);
    }
    svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }, root);

    const clip = `clip-${Chart.all.indexOf(this)}`;
    svg("rect", { x: box.left, y: box.top - 4, width: Math.max(0, box.right - box.left + 4), height: box.bottom - box.top + 8 },
      svg("clipPath", { id: clip }, svg("defs", {}, root)));
    const plot = svg("g", { "clip-path": `url(#${clip})` }, root);
    const visible = v => v !== null && v !== undefined && !(logarithmic && v <= 0);
    const path = (values, stairs) => {
      let text = "", pen = false;
      values.forEach((v, i) => {
        if (!visible(v) || x.values[i] === null) return void (pen = false);
        if (pen && stairs) text += `H${at_x(x.values[i]).toFixed(1)}`;
        text += `${pen ? "L" : "M"}${at_x(x.values[i]).toFixed(1)},${at_y(v).toFixed(1)}`;
        pen = true;
      });
      return text;
    };
    for (const s of series) {
      if (s.low) {
        const back = s.low.map((v, i) => [v, i]).filter(([v, i]) => visible(v) && x.values[i] !== null).reverse()
          .map(([v, i]) => `L${at_x(x.values[i]).toFixed(1)},${at_y(v).toFixed(1)}`).join("");
        svg("path", { class: "area", fill: s.color, d: path(s.high).replaceAll("M", "L").replace("L", "M") + back + "Z" }, plot);
      }
      if (s.raw) svg("path", { class: "raw", stroke: s.color, d: path(s.raw) }, plot);
    }
    for (const s of series) {
      if (s.points) {
        const points = s.points.filter(p => visible(p.y) && p.x !== null);
        const d = points.map((p, i) => `${i > 0 ? "L" : "M"}${at_x(p.x).toFixed(1)},${at_y(p.y).toFixed(1)}`).join("");
        svg("path", { class: "line", stroke: s.color, d }, plot);
        if (points.length <= 60)
          for (const p of points) svg("circle", { cx: at_x(p.x), cy: at_y(p.y), r: 3, fill: s.color }, root);
      } else {
        svg("path", { class: "line", stroke: s.color, d: path(s.values, s.stairs) }, plot);
      }
    }
    this.cursor = svg("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" }, root);
    const cover = svg("rect", {
      x: box.left, y: box.top, width: Math.max(0, box.right - box.left), height: box.bottom - box.top, fill: "transparent",
    }, root);
    cover.addEventListener("pointermove", event => this.hover(event, x_low, x_high, root));
    cover.addEventListener("pointerleave", () => {
      tip.hide();
      for (const chart of Chart.all) chart.point_at(null);
    });
  }

  hover(event, x_low, x_high, root) {
    const { x, series } = this.options;
    const area = root.getBoundingClientRect(), scale = this.width > 0 ? area.width / Math.max(200, this.width) : 1;
    const part = ((event.clientX - area.left) / scale - this.box.left) / (this.box.right - this.box.left);
    const wanted = x_low + part * (x_high - x_low);
    let nearest = -1;
    x.values.forEach((v, i) => {
      if (v !== null && (nearest < 0 || Math.abs(v - wanted) < Math.abs(x.values[nearest] - wanted))) nearest = i;
    });
    if (nearest < 0) return;
    for (const chart of Chart.all) chart.point_at(x.values[nearest]);
    const rows = [];
    for (const s of series) {
      if (s.points) {
        const p = s.points.filter(q => q.x !== null).reduce(
          (best, q) => !best || Math.abs(q.x - wanted) < Math.abs(best.x - wanted) ? q : best, null);
        if (p) rows.push([s.color, `${s.name} (${x.format(p.x)})`, this.options.format(p.y, 5)]);
        continue;
      }
      rows.push([s.color, s.name, this.options.format(s.values[nearest], 5)]);
      if (s.low) rows.push([null, "between", `${this.options.format(s.low[nearest])} and ${this.options.format(s.high[nearest])}`]);
    }
    tip.show(event, x.tell(nearest), rows);
  }

  point_at(value) {
    if (!this.cursor) return;
    if (value === null) return this.cursor.setAttribute("visibility", "hidden");
    this.cursor.setAttribute("x1", this.at_x(value));
    this.cursor.setAttribute("x2", this.at_x(value));
    this.cursor.setAttribute("visibility", "visible");
  }
}
