// How work is divided among workers: the arrangements of a run's generations, and the timeline of one profiled step.
"use strict";

// --- Arrangements: a row for each generation, and the stages of the newest one's model replicas.

function stage_row(stage, number, several) {
  const members = stage.members.map(m => `worker ${m.id}` +
    (stage.members.length > 1 ? ` (shards ${listed([m.shards])}, ${percent(m.part)})` : "")).join(", ");
  const bar = html("div", { class: "stack", style: "height:12px;margin:4px 0" },
    html("span", { style: `width:${100 * stage.work}%;background:var(--blue)` }));
  return html("tr", {}, ...(several ? [html("td", { class: "nowrap" }, `stage ${number}`)] : []),
    ...(several ? [html("td", {}, `${listed(stage.segments)}${stage.names ? ` (${stage.names})` : ""}`),
      html("td", { class: "number" }, percent(stage.work)), html("td", { style: "width:22%" }, bar)] : []),
    html("td", {}, members));
}

function replica_table(replica, number) {
  const several = replica.stages.length > 1, body = html("tbody");
  const heads = several ? ["", "segments", "of a rank gradient", "", "workers"] : ["workers"];
  replica.stages.forEach((stage, i) => body.append(stage_row(stage, i, several)));
  return html("div", { style: "margin:10px 0" },
    html("h3", {}, `Model replica ${number}: virtual ranks ${listed(replica.vranks) || "–"}`),
    html("table", {}, html("thead", {}, html("tr", {}, ...heads.map((t, i) => html("th", i === 2 ? { class: "number" } : {}, t)))), body));
}

function fill_arrangement() {
  const told = data.arrangement;
  if (!told || told.generations.length === 0) return;
  by_id("arrangement").hidden = false;
  const host = by_id("arrangements"), body = html("tbody");
  for (const g of told.generations)
    body.append(html("tr", {}, html("td", { class: "number" }, g.number), html("td", { class: "number" }, g.step === null ? "–" : whole(g.step)),
      html("td", { class: "number" }, whole(g.workers)), html("td", {}, g.text), html("td", { class: "fields" }, g.reason)));
  host.append(html("div", { class: "scroll short" }, html("table", {}, html("thead", {}, html("tr", {},
    ...["generation", "from step", "workers", "arrangement", "because"].map((t, i) => html("th", i < 3 ? { class: "number" } : {}, t)))), body)));
  if (told.generations_left_out > 0)
    host.append(html("p", { class: "muted small" }, `${whole(told.generations_left_out)} earlier generations are left out.`));
  const divided = told.generations.filter(g => g.replicas.length > 0).reverse();
  divided.forEach((g, i) => {
    const all = g.replicas.map(replica_table);
    if (g.replicas_left_out > 0) all.push(html("p", { class: "muted small" }, `${whole(g.replicas_left_out)} more model replicas are left out.`));
    host.append(html("details", { style: "margin-top:10px", ...(i === 0 ? { open: "" } : {}) }, html("summary", {}, `generation ${g.number}`), ...all));
  });
}

// --- One step: a row for each worker.

const kSpans = {
  forward: ["var(--blue)", "forward passes"], backward: ["var(--green)", "backward passes"],
  exchange: ["var(--orange)", "exchanges"], update: ["var(--purple)", "update"],
  other: ["var(--teal)", "data, digests and others"], wait: ["url(#waiting)", "waits"],
};

function draw_step(host, step) {
  const width = Math.max(360, host.clientWidth), rows = step.rows;
  const tall = rows.length > 24 ? 16 : 28, gap = tall > 20 ? 7 : 3;
  const named = row => [`worker ${row.worker}`, row.stage !== null ? `stage ${row.stage}` : ""].filter(Boolean).join(", ");
  const box = { left: 16 + 6.2 * Math.max(...rows.map(row => named(row).length)), right: width - 14, top: 6 };
  let y = box.top, before = null;
  const places = rows.map(row => {  // replicas are apart
    if (before !== null && row.replica !== before) y += 12;
    before = row.replica;
    y += tall + gap;
    return y - tall - gap;
  });
  const bottom = y, height = y + 24, at = s => box.left + s / step.seconds * (box.right - box.left);
  host.replaceChildren();
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `time line of step ${step.step}` }, host);
  const hatch = svg("pattern", { id: "waiting", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("defs", {}, root));
  svg("rect", { width: 6, height: 6, fill: "var(--grid)" }, hatch);
  svg("rect", { width: 1.5, height: 6, fill: "var(--muted)", opacity: 0.45 }, hatch);
  for (const s of ticks(0, step.seconds, Math.max(2, Math.floor(width / 110)))) {
    svg("line", { class: "grid", x1: at(s), x2: at(s), y1: box.top - 4, y2: bottom }, root);
    svg("text", { x: at(s), y: height - 6, "text-anchor": at(s) > box.right - 20 ? "end" : "middle" }, root).textContent = duration(s);
  }
  rows.forEach((row, i) => {
    const top = places[i], middle = top + tall / 2 + 4;
    svg("text", { x: box.left - 8, y: middle, "text-anchor": "end" }, root).textContent = named(row);
    for (const [name, from, to, depth, vrank] of row.spans) {
      const { name: what, kind } = step.names[name], long = Math.max(0.5, at(to) - at(from));
      const pass = depth === 0 && (kind === "forward" || kind === "backward"), part = depth > 0 ? 0.3 : 1;
      const bar = svg("rect", {
        x: at(from), y: top + tall * (1 - part), width: Math.max(0.5, long - (pass && long > 3 ? 1 : 0)), height: tall * part,
        rx: pass ? Math.min(2, long / 3) : 0, fill: kSpans[kind][0], opacity: pass || kind === "wait" ? 1 : 0.85,
      }, root);
      if (pass && vrank >= 0 && tall > 14 && long > 5 + 7 * `${vrank}`.length)
        svg("text", { x: at(from) + long / 2, y: middle - (tall > 20 ? 2 : 0), "text-anchor": "middle", style: "fill:var(--card);font-weight:600;pointer-events:none" }, root).textContent = vrank;
      bar.addEventListener("pointermove", event => tip.show(event, `${named(row)}: ${what}`, [
        ...(vrank >= 0 ? [[null, "virtual rank", `${vrank}`]] : []), [null, "from", duration(from)], [null, "for", duration(to - from)],
      ]));
      bar.addEventListener("pointerleave", tip.hide);
    }
  });
}

function bubble_text(bubble) {
  const expected = [
    bubble.predicted !== null ? `${percent(bubble.predicted)} predicted from the segments' times` : "",
    bubble.scheduled !== null ? `${percent(bubble.scheduled)} for passes as long as these` : "",
  ].filter(Boolean).join(", ");
  return `Model replica ${bubble.replica}: its stages compute no pass in ${percent(bubble.measured)} of the time (bubble)` +
    (expected ? `; the schedule has ${expected}.` : ".");
}

function fill_step() {
  const step = data.profile;
  if (!step || step.rows.length === 0) return;
  by_id("step").hidden = false;
  by_id("step-head").textContent = `Step ${whole(step.step)}, of the profile: ${duration(step.seconds)}`;
  for (const bubble of step.bubbles) by_id("bubbles").append(html("p", {}, bubble_text(bubble)));
  if (step.bubbles_left_out > 0)
    by_id("bubbles").append(html("p", { class: "muted small" }, `${whole(step.bubbles_left_out)} more model replicas are left out.`));
  const legend = by_id("step-legend");
  for (const [kind, [color, name]] of Object.entries(kSpans)) {
    const shown = kind === "wait" ? "repeating-linear-gradient(45deg,var(--muted) 0 1px,var(--grid) 1px 4px)" : color;
    legend.append(html("span", { class: "key" }, html("span", { class: "swatch block", style: `background:${shown}` }), `${name} ${percent(step.kinds[kind])}`));
  }
  const host = by_id("step-timeline");
  on_resize(host, () => draw_step(host, step));
  by_id("step-note").textContent = [
    "Numbers: virtual ranks. A strip at the foot of a pass: an exchange or a wait within it. Workers on several hosts are aligned by their clocks.",
    step.rows_left_out > 0 ? `${whole(step.rows_left_out)} more workers are left out.` : "",
  ].filter(Boolean).join(" ");
}
