// The timeline of workers: a row for each, from its first message to its last, with its virtual ranks.
"use strict";

const kEnds = {
  died: ["var(--red)", "✕"], "evicted": ["var(--red)", "⚠"], left: ["var(--muted)", "◂"], refused: ["var(--orange)", "⊘"], gone: ["var(--orange)", "?"],
  ended: ["var(--muted)", "|"], "": [null, ""],
};
const kBands = { recovering: "var(--red)", holding: "var(--orange)" };

const listed = intervals => intervals.map(([b, e]) => e - b === 1 ? `${b}` : `${b}–${e - 1}`).join(", ");
const total = intervals => intervals.reduce((sum, [b, e]) => sum + e - b, 0);

function draw_timeline(host, data, marks) {
  const width = Math.max(320, host.clientWidth);
  const rows = data.workers;
  const tall = rows.length > 60 ? 9 : rows.length > 24 ? 14 : 22, gap = tall > 12 ? 4 : 2;
  const box = { left: tall > 12 ? 92 : 62, right: width - 14, top: 30 };
  const height = box.top + rows.length * (tall + gap) + 26;
  const at = s => box.left + (data.seconds > 0 ? s / data.seconds : 0) * (box.right - box.left);
  let most = 1;
  for (const row of rows) for (const span of row.spans) most = Math.max(most, total(span.vranks));
  host.replaceChildren();
  if (rows.length === 0) return void host.append(html("p", { class: "muted" }, "No events tell of any worker."));

  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "time line of the workers" }, host);
  const hatch = svg("pattern", { id: "learning", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("defs", {}, root));
  svg("rect", { width: 2.5, height: 6, fill: "var(--muted)", opacity: 0.55 }, hatch);
  const bottom = height - 22;
  for (const s of time_ticks(data.seconds, Math.max(2, Math.floor(width / 100)))) {
    svg("line", { class: "grid", x1: at(s), x2: at(s), y1: box.top - 4, y2: bottom }, root);
    svg("text", { x: at(s), y: height - 6, "text-anchor": "middle" }, root).textContent = s === 0 ? "start" : duration(s);
  }
  const told = (element, head, lines) => {
    element.addEventListener("pointermove", event => tip.show(event, head, lines));
    element.addEventListener("pointerleave", tip.hide);
  };
  for (const b of data.bands) {
    const band = svg("rect", {
      x: at(b.from), y: box.top - 4, width: Math.max(1.5, at(b.to) - at(b.from)), height: bottom - box.top + 4,
      fill: kBands[b.what], opacity: 0.22,
    }, root);
    told(band, b.what, [[null, "for", duration(b.to - b.from)], [null, "because", b.reason || "–"]]);
  }
  for (const s of data.resumed) {
    const line = svg("line", { x1: at(s), x2: at(s), y1: box.top - 4, y2: bottom, stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "5 4" }, root);
    told(line, "resumed", []);
  }
  rows.forEach((row, i) => {
    const y = box.top + i * (tall + gap), middle = y + tall / 2 + 4;
    const name = row.id > 0 ? `worker ${row.id}` : "newcomer";
    svg("text", { x: box.left - 8, y: middle, "text-anchor": "end" }, root).textContent = tall > 12 ? name : row.id || "–";
    const first = row.spans.length > 0 ? row.spans[0].from : row.to;
    if (first > row.from) {
      const learning = svg("rect", { x: at(row.from), y: y + tall * 0.3, width: Math.max(1, at(first) - at(row.from)), height: tall * 0.4, fill: "url(#learning)" }, root);
      told(learning, `${name} starts`, [[null, "for", duration(first - row.from)]]);
    }
    for (const s of row.spans) {
      const count = total(s.vranks), long = Math.max(1, at(s.to) - at(s.from));
      const bar = svg("rect", { x: at(s.from), y, width: long, height: tall, rx: Math.min(3, long / 2), fill: "var(--blue)", opacity: count > 0 ? 0.35 + 0.6 * count / most : 0.15 }, root);
      if (count > 0 && tall > 12 && long > 9 + 7 * `${count}`.length)
        svg("text", { x: at(s.from) + long / 2, y: middle, "text-anchor": "middle", style: "fill:var(--card);font-weight:600;pointer-events:none" }, root).textContent = count;
      told(bar, name, [
        [null, "virtual ranks", count > 0 ? `${count}: ${listed(s.vranks)}` : "none, it follows along"],
        [null, "generation", `${s.generation}`],
        [null, "from", duration(s.from)], [null, "for", duration(s.to - s.from)],
      ]);
    }
    const [color, sign] = kEnds[row.how] ?? kEnds[""];
    if (!color) return;
    const mark = svg("text", { x: at(row.to) + 1, y: middle, "text-anchor": row.how === "ended" ? "start" : "middle", style: `fill:${color};font-weight:700;font-size:${Math.min(15, tall)}px` }, root);
    mark.textContent = sign;
    told(mark, `${name} ${row.how}`, [[null, "at", duration(row.to)], ...(row.reason ? [[null, "because", row.reason]] : [])]);
  });
  for (const m of marks) {
    const mark = svg("path", { d: `M${at(m.at)},${box.top - 7}l-4,-8h8z`, fill: m.color, opacity: 0.85 }, root);
    told(mark, m.head, m.lines);
  }
  if (data.workers_left_out > 0)
    host.append(html("p", { class: "muted small" }, `${whole(data.workers_left_out)} more were there for a shorter time, and are left out.`));
  host.append(html("p", { class: "muted small" },
    "A bar's depth and number: virtual ranks. Hatched: learns the state. ✕ died, ⚠ evicted by an audit, ◂ left, ⊘ refused, ? gone without a word. " +
    "Red: recovering; orange: holding. Triangles: events. Between a part of the run and its resumption the axis is cut."));
}
