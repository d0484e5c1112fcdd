// Shows which job had which slot when: a row for each slot, pale while it existed, in the job's colour while it worked.
"use strict";

const kColors = ["blue", "orange", "green", "purple", "teal", "pink", "olive", "red"].map(name => `var(--${name})`);
const color_of = job => kColors[(job - 1) % kColors.length];
const clock = seconds => new Date(1000 * seconds).toLocaleTimeString("en-GB");
const short_clock = (seconds, span) => clock(seconds).slice(0, span > 600 ? 5 : 8);

// Round times of day, in seconds after `begin`, within `span` seconds.
function clock_ticks(begin, span, count) {
  const step = kTimes.find(s => span / s <= count) ?? 604800, zone = 60 * new Date(1000 * begin).getTimezoneOffset();
  const first = Math.ceil((begin - zone) / step) * step + zone - begin;
  return Array.from({ length: Math.max(0, Math.floor((span - first) / step) + 1) }, (_, i) => first + i * step);
}

// Consecutive slots of one place share a row, so a host that returns continues its row.
function rows_of(slots) {
  const rows = [];
  for (const slot of slots) {
    const place = `${slot.source}/${slot.host}`;
    const free = rows.find(row => row.place === place && row.slots.every(s => s.gone !== null && s.gone <= slot.since));
    if (free) free.slots.push(slot);
    else rows.push({ place, host: slot.host, kind: slot.kind, slots: [slot] });
  }
  return rows.sort((a, b) => a.place < b.place ? -1 : a.place > b.place ? 1 : 0);
}

function draw_machines(host, data, begin) {
  const width = Math.max(320, host.clientWidth), rows = rows_of(data.slots);
  host.replaceChildren();
  if (rows.length === 0) return void host.append(html("p", { class: "muted" }, "No machine has been there."));
  const tall = rows.length > 60 ? 9 : rows.length > 24 ? 14 : 22, gap = tall > 12 ? 4 : 2;
  const box = { left: 132, right: width - 14, top: 8 };
  const span = data.time - begin, height = box.top + rows.length * (tall + gap) + 26, bottom = height - 22;
  const at = time => box.left + Math.max(0, Math.min(1, (time - begin) / span)) * (box.right - box.left);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "time line of the slots" }, host);
  for (const s of clock_ticks(begin, span, Math.max(2, Math.floor(width / 110)))) {
    svg("line", { class: "grid", x1: at(begin + s), x2: at(begin + s), y1: box.top - 4, y2: bottom }, root);
    svg("text", { x: at(begin + s), y: height - 6, "text-anchor": "middle" }, root).textContent = short_clock(begin + s, span);
  }
  const told = (element, head, lines) => {
    element.addEventListener("pointermove", event => tip.show(event, head, lines));
    element.addEventListener("pointerleave", tip.hide);
  };
  const names = new Map(data.jobs.map(job => [job.id, job.name])), row_of_slot = new Map();
  rows.forEach((row, i) => {
    const y = box.top + i * (tall + gap);
    if (tall > 12) {
      const label = svg("text", { x: box.left - 8, y: y + tall / 2 + 4, "text-anchor": "end" }, root);
      label.textContent = row.host.length > 18 ? `${row.host.slice(0, 17)}…` : row.host;
      told(label, row.host, [[null, "kind", row.kind]]);
    }
    for (const slot of row.slots) {
      row_of_slot.set(slot.id, y);
      const from = at(slot.since), to = at(slot.gone ?? data.time);
      told(svg("rect", { x: from, y, width: Math.max(1, to - from), height: tall, rx: 3, fill: "var(--line)", opacity: 0.6 }, root),
        row.host, [[null, "kind", slot.kind], [null, "there since", clock(slot.since)], ...(slot.gone ? [[null, "gone", clock(slot.gone)]] : [])]);
    }
  });
  const deaths = [];
  for (const worker of data.workers) {
    const from = at(worker.from), to = at(worker.to ?? data.time), failed = worker.code !== null && worker.code !== 0;
    for (const slot of worker.slots) {
      const y = row_of_slot.get(slot);
      if (y === undefined || to <= box.left) continue;
      const long = Math.max(1.5, to - from);
      const bar = svg("rect", { x: from, y: y + 2, width: long, height: tall - 4, rx: 2, fill: color_of(worker.job), opacity: worker.leaving && !worker.to ? 0.5 : 0.9 }, root);
      if (tall > 12 && long > 26)
        svg("text", { x: from + long / 2, y: y + tall / 2 + 4, "text-anchor": "middle", style: "fill:var(--card);font-weight:600;pointer-events:none" }, root).textContent = worker.job;
      if (failed && !worker.leaving) deaths.push([to, y + tall / 2]);
      told(bar, `job ${worker.job}, ${names.get(worker.job) ?? ""}`, [
        [null, "from", clock(worker.from)], [null, "for", duration((worker.to ?? data.time) - worker.from)],
        ...(worker.code !== null ? [[null, "exit code", worker.code < 0 ? "unknown" : `${worker.code}`]] : []),
      ]);
    }
  }
  for (const [x, y] of deaths) {
    svg("circle", { cx: x, cy: y, r: 6, fill: "var(--card)", stroke: "var(--red)", style: "pointer-events:none" }, root);
    svg("text", { x, y: y + 3.5, "text-anchor": "middle", style: "fill:var(--red);font-weight:700;font-size:10px;pointer-events:none" }, root).textContent = "✕";
  }
}
