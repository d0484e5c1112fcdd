// The page of a run: fills it from the data embedded in it.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// --- Head, verdict, numbers.

const kStatus = { finished: "good", failed: "bad", interrupted: "warning", running: "" };

function fill_head() {
  document.title = `${data.run.name} · Elinvar`;
  by_id("name").textContent = data.run.name;
  by_id("where").textContent = [data.run.directory, data.run.began ? `began ${data.run.began.slice(0, 16).replace("T", " ")} UTC` : ""]
    .filter(Boolean).join(" · ");
  by_id("status").textContent = data.status.what;
  by_id("status").className = `chip ${kStatus[data.status.what] ?? ""}`;
  by_id("footer").textContent = `Written by repro ${data.version} on ${data.written.slice(0, 16).replace("T", " ")} UTC.`;
  if (data.problems.length > 0 || data.status.reason) {
    const box = by_id("problems");
    box.hidden = false;
    box.classList.toggle("bad", Boolean(data.status.reason));
    if (data.status.reason) box.append(html("p", {}, html("strong", {}, "The run failed: "), data.status.reason));
    for (const problem of data.problems) box.append(html("p", {}, problem));
  }
}

// Lists the fields of a comparison.
function facts_of(object) {
  const list = html("dl", { class: "facts" });
  for (const [key, value] of Object.entries(object)) {
    if (value === null || value === "") continue;
    const text = typeof value === "object" ? JSON.stringify(value) : `${value}`;
    list.append(html("dt", {}, key.replaceAll("_", " ")), html("dd", {}, text));
  }
  return list;
}

// Verdicts of repro diff and repro bisect.
const kVerdicts = { equal: "good", violation: "bad", op: "bad", transient: "bad", program: "bad" };

function fill_verdict() {
  if (!data.verdict) return;
  const box = by_id("verdict"), { verdict, text, ...rest } = data.verdict, kind = kVerdicts[verdict] ?? "warning";
  box.hidden = false;
  box.classList.add(kind);
  box.append(html("div", { class: "bar" }, html("h2", {}, "Last comparison"), html("span", { class: `chip ${kind}` }, verdict)));
  if (text) box.append(html("pre", { class: "told" }, text.trim()));
  else if (rest.divergence)
    box.append(html("p", {}, `Different from step ${whole(rest.divergence.step)} on, in phase ${rest.divergence.phase}.`));
  if (Object.keys(rest).length > 0)
    box.append(html("details", {}, html("summary", {}, "all that it told"), facts_of(rest)));
}

// Shows whose machine computed wrongly.
function fill_audits() {
  const found = data.events.filter(e => e.event === "audit" && e.fields.verdict === "guilty");
  if (found.length === 0) return;
  const box = by_id("audits");
  box.hidden = false;
  box.append(html("div", { class: "bar" }, html("h2", {}, "Audits found a fault"), html("span", { class: "chip bad" }, "evicted")));
  for (const e of found) {
    const ids = e.fields.workers ?? [];
    box.append(html("p", {}, html("strong", {}, `${ids.length > 0 ? who(ids) : "a worker"}: `), e.fields.reason ?? "",
      html("span", { class: "muted" }, ` · ${duration(e.at)} after the start`)));
  }
  box.append(html("p", { class: "muted small" }, "The run went on with what the others computed. The machine should be looked at."));
}

function tile(what, value, more = "", extra = "") {
  by_id("tiles").append(html("div", { class: `tile ${extra && "wide"}` }, html("div", { class: "what" }, what),
    html("div", { class: `value ${extra}` }, value), html("div", { class: "more" }, more)));
}

function fill_tiles() {
  const s = data.status, c = data.curves, last = c.step.length - 1, v = data.validation.at(-1);
  tile("Steps", whole(s.step), s.steps && s.steps !== s.step ? `of ${whole(s.steps)}` : "");
  tile("Training loss", format(s.loss ?? c.loss.at(-1) ?? null, 5), "of the last step");
  if (v) tile("Validation loss", format(v.loss, 5), `after step ${whole(v.step)}`);
  if (v && v.accuracy !== null) {
    const best = data.best_validation;
    tile("Validation accuracy", percent(v.accuracy, 2), best.step === v.step ? "the best so far" : `best ${percent(best.accuracy, 2)} at step ${whole(best.step)}`);
  }
  for (const [name, value] of Object.entries(v?.metrics ?? {})) tile(`Validation ${name}`, format(value, 4), `after step ${whole(v.step)}`);
  const time = data.time;
  if (time.seconds) tile("Time", duration(time.seconds), time.parts > 1 ? `in ${time.parts} parts` : "");
  if (time.goodput !== null) tile("Goodput", percent(time.goodput), "of the time went to training");
  const rates = c.rate.filter(r => r !== null && r > 0).sort((a, b) => a - b);
  if (rates.length > 0) tile("Throughput", format(rates[rates.length >> 1], 4), `${data.unit} a second, the median`);
  const members = data.timeline.workers.filter(w => w.id > 0), count = how => members.filter(w => w.how === how).length;
  const died = count("died"), evicted = count("evicted");
  if (members.length > 0)
    tile("Workers", `${Math.max(...c.workers, 1)}`, [members.length > 1 ? `at most; ${members.length}${data.timeline.workers_left_out > 0 ? " and more" : ""} were started` : "", died > 0 ? `${died} died` : "", evicted > 0 ? `${evicted} evicted` : "", last >= 0 ? `${c.workers[last]} at the end` : ""].filter(Boolean).join(", "));
  if (s.digest) tile("Digest of the state", s.digest, "", "mono");
}

// --- Curves.

function fill_curves() {
  const c = data.curves;
  if (c.step.length === 0) {
    by_id("curves").append(html("p", { class: "muted" }, "No step has been recorded."));
    by_id("curves").querySelector(".controls").hidden = true;
    return;
  }
  const timed = c.seconds.some(s => s !== null);
  by_id("axis").hidden = !timed;
  if (c.each > 1) {
    by_id("binning").hidden = false;
    by_id("binning").textContent = `Each point stands for ${whole(c.each)} steps: the mean, and for the loss the least and the most as a band.`;
  }
  let axis = "step", amount = 0.5;
  const at_step = step => {
    if (axis === "step") return step;
    let low = 0, high = c.step.length - 1;  // the first point at or after the step
    while (low < high) {
      const middle = (low + high) >> 1;
      if (c.step[middle] >= step) high = middle;
      else low = middle + 1;
    }
    return c.seconds[low];
  };
  const x = () => axis === "step"
    ? { values: c.step, format: whole, tell: i => `step ${whole(c.step[i])}` }
    : { values: c.seconds, format: duration, time: true, tell: i => `step ${whole(c.step[i])}, ${duration(c.seconds[i])}` };
  const charts = [];
  const add = (title, shown, series, more = {}) => {
    const host = html("div", { class: "chart" });
    by_id("charts").append(host);
    charts.push([new Chart(host, { title, format: shown, x: x(), series: series(), ...more }), series]);
  };
  const soft = (name, color, values) => ({ name, color, values: smoothed(values, amount), raw: values });
  const validation = key => data.validation.filter(v => v[key] !== null).map(v => ({ x: at_step(v.step), y: v[key] }));
  const blue = "var(--blue)", orange = "var(--orange)", green = "var(--green)", purple = "var(--purple)", teal = "var(--teal)";
  const known = values => values.some(v => v !== null);

  add("Loss", format, () => [
    { ...soft("training", blue, c.loss), ...(c.each > 1 ? { low: c.loss_low, high: c.loss_high } : {}) },
    ...(data.validation.length > 0 ? [{ name: "validation", color: orange, points: validation("loss") }] : []),
  ], { loss: true });
  if (known(c.accuracy)) add("Accuracy", (v, d) => v === null ? "–" : `${format(100 * v, d ?? 3)} %`, () => [
    soft("training", blue, c.accuracy),
    ...(data.validation.some(v => v.accuracy !== null) ? [{ name: "validation", color: orange, points: validation("accuracy") }] : []),
  ]);
  for (const name of Object.keys(data.validation.at(-1)?.metrics ?? {}))
    add(`Validation ${name}`, format, () => [{ name, color: orange, unnamed: true,
      points: data.validation.filter(v => v.metrics?.[name] != null).map(v => ({ x: at_step(v.step), y: v.metrics[name] })) }]);
  add("Learning rate", format, () => [{ name: "learning rate", color: purple, values: c.lr, unnamed: true }], { from_zero: true });
  if (known(c.gradient_norm)) add("Norm of the gradient", format, () => [{ ...soft("norm", teal, c.gradient_norm), unnamed: true }], { from_zero: true });
  add(`Throughput (${data.unit} a second)`, format, () => [{ ...soft("throughput", green, c.rate), unnamed: true }], { from_zero: true, robust: true });
  add("Workers", v => v === null ? "–" : format(v, 3), () => [{ name: "workers", color: blue, values: c.workers, stairs: true, unnamed: true }], { from_zero: true });
  if (known(c.reduce_seconds) && c.workers.some(w => w > 1))
    add("Reduction, and waiting for others", duration, () => [{ ...soft("a step", orange, c.reduce_seconds), unnamed: true }], { from_zero: true, robust: true });

  const redraw = () => charts.forEach(([chart, series]) => chart.draw({ x: x(), series: series() }));
  by_id("smoothing").addEventListener("input", event => { amount = event.target.value / 100; redraw(); });
  by_id("log").addEventListener("change", event => {
    for (const [chart] of charts) if (chart.options.loss) chart.draw({ logarithmic: event.target.checked });
  });
  by_id("axis").addEventListener("click", event => {
    if (!event.target.dataset.axis) return;
    axis = event.target.dataset.axis;
    for (const b of by_id("axis").children) b.setAttribute("aria-pressed", b === event.target);
    redraw();
  });
}

// --- Time.

const kCauses = {
  training: ["var(--green)", "training"], starting: ["var(--muted)", "starting"], holding: ["var(--olive)", "holding: too few workers"],
  recovering: ["var(--red)", "recovering from deaths"], evaluating: ["var(--purple)", "evaluating"],
  checkpointing: ["var(--blue)", "saving checkpoints"], changing: ["var(--teal)", "workers joined or left"],
  finishing: ["var(--orange)", "finishing"],
};

function shares(host, head, parts, whole_of, rest) {
  const stack = html("div", { class: "stack" }), body = html("tbody");
  for (const [color, name, seconds, more] of parts) {
    const part = whole_of > 0 ? seconds / whole_of : 0;
    const span = html("span", { style: `width:${100 * part}%;background:${color}` });
    span.addEventListener("pointermove", event => tip.show(event, name, [[null, duration(seconds), percent(part)]]));
    span.addEventListener("pointerleave", tip.hide);
    if (seconds > 0) stack.append(span);
    body.append(html("tr", {}, html("td", {}, html("span", { class: "swatch", style: `background:${color}` }), name),
      html("td", { class: "number" }, duration(seconds)), html("td", { class: "number" }, percent(part, 2)),
      html("td", { class: "number" }, more ?? "")));
  }
  host.append(html("h3", {}, head), stack, html("table", {}, body));
  if (rest) host.append(html("p", { class: "muted small" }, rest));
}

function fill_time() {
  const time = data.time, host = by_id("goodput");
  if (time.told_seconds > 0) {
    const parts = [["training", { seconds: time.training }], ...Object.entries(time.lost)];
    shares(host, `The whole run: goodput ${percent(time.told_goodput)}`, parts.map(([cause, lost]) => [
      ...(kCauses[cause] ?? ["var(--pink)", cause]), lost.seconds, lost.times ? `${whole(lost.times)} ×` : "",
    ]), time.told_seconds, time.untold > 0 ? `Without ${time.untold} part${time.untold > 1 ? "s" : ""} of the run that ended without a word.` : "");
  } else {
    host.append(html("h3", {}, "The whole run"), html("p", { class: "muted" },
      time.goodput === null ? "Nothing tells yet." : `Goodput so far is ${percent(time.goodput)}; where the rest went is told when the run ends.`));
  }
  const step = data.step_time, place = by_id("step-time");
  if (!step) return void place.append(html("h3", {}, "A step"), html("p", { class: "muted" }, "The metrics tell no times of steps."));
  const other = Math.max(0, step.seconds - step.leaves - step.reduce);
  shares(place, `A step: ${duration(step.seconds)} in the mean of ${whole(step.steps)}`, [
    ["var(--blue)", "leaves of the leader: forward and backward", step.leaves],
    ["var(--orange)", "reduction, and waiting for others", step.reduce],
    ["var(--muted)", "update, data, adding up, the rest", other],
  ], step.seconds);
  if (step.workers.length < 2) return;
  const body = html("tbody");
  for (const w of step.workers)
    body.append(html("tr", {}, html("td", { class: "nowrap" }, `worker ${w.id}`), html("td", { class: "number" }, duration(w.leaf)),
      html("td", { class: "number" }, format(w.leaves, 3)), html("td", { class: "number" }, percent(w.busy)), html("td", { class: "number" }, whole(w.steps))));
  place.append(html("div", { class: "scroll short" }, html("table", {}, html("thead", {}, html("tr", {}, ...["", "a rank gradient takes", "rank gradients a step", "computes", "steps"].map(
    (t, i) => html("th", i > 0 ? { class: "number" } : {}, t)))), body)));
}

// --- Events.

const kGrave = {
  lost: "var(--red)", failed: "var(--red)", kill: "var(--red)", stuck: "var(--red)", flip: "var(--red)",
  fence: "var(--orange)", hold: "var(--orange)", refused: "var(--orange)", turned_away: "var(--orange)", interrupted: "var(--orange)",
  stall: "var(--orange)", drop: "var(--orange)", generation: "var(--blue)", switched: "var(--blue)", left: "var(--teal)", drain: "var(--teal)",
  checkpoint: "var(--purple)", finished: "var(--green)", start: "var(--green)", resume: "var(--green)", ready: "var(--green)",
};
// Audits have a colour by their verdict.
const kAudits = { agreed: "var(--green)", guilty: "var(--red)" };
const color_of = (e, otherwise) => e.event === "audit" ? kAudits[e.fields.verdict] ?? "var(--orange)" : kGrave[e.event] ?? otherwise;
const kQuiet = new Set(["hello", "ready", "fed", "switched", "generation", "join", "end"]);

// Processes have long numbers; members of the job have short ones.
const kMembers = new Map(data.timeline.workers.filter(w => w.id > 0).map(w => [w.peer, w.id]));

function told(fields) {
  return Object.entries(fields).filter(([, v]) => v !== "" && v !== null)
    .map(([k, v]) => k !== "worker" && kMembers.has(`${v}`) ? [k === "peer" ? "worker" : `${k} worker`, kMembers.get(`${v}`)] : [k, v])
    .filter(([k], i, all) => all.findIndex(([other]) => other === k) === i)
    .map(([k, v]) => `${k.replaceAll("_", " ")} ${typeof v === "object" ? JSON.stringify(v) : typeof v === "number" ? (Number.isInteger(v) ? v : format(v)) : v}`)
    .join(" · ");
}

function fill_events() {
  const body = html("tbody"), rows = [];
  for (const e of data.events) {
    const row = html("tr", {}, html("td", { class: "number" }, e.at === null ? "" : duration(e.at)), html("td", { class: "nowrap mono" }, e.time.slice(0, 19).replace("T", " ")),
      html("td", { class: "nowrap" }, html("span", { class: "dot", style: `background:${color_of(e, "var(--line)")}` }), e.event),
      html("td", { class: "fields" }, told(e.fields)));
    rows.push([row, row.textContent.toLowerCase()]);
    body.append(row);
  }
  const head = html("thead", {}, html("tr", {}, ...["after", "time (UTC)", "event", ""].map(t => html("th", t === "after" ? { class: "number" } : {}, t))));
  by_id("events").append(data.events.length > 0 ? html("table", {}, head, body) : html("p", { class: "muted" }, "None."));
  if (data.events_left_out > 0)
    by_id("happened").append(html("p", { class: "muted small" }, `${whole(data.events_left_out)} of the least important events are left out.`));
  by_id("filter").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    for (const [row, text] of rows) row.hidden = !text.includes(wanted);
  });
}

function fill_workers() {
  const marks = data.events.filter(e => e.at !== null && !kQuiet.has(e.event)).slice(0, 1500).map(e => ({
    at: e.at, color: color_of(e, "var(--muted)"), head: e.event,
    lines: [[null, "at", duration(e.at)], ...Object.entries(e.fields).slice(0, 6).map(([k, v]) =>
      [null, k.replaceAll("_", " "), typeof v === "object" ? JSON.stringify(v) : typeof v === "number" ? format(v) : `${v}`])],
  }));
  const host = by_id("timeline");
  on_resize(host, () => draw_timeline(host, data.timeline, marks));
}

// --- Environments. Values that all workers share are shown once.

// Flattens an object to keys like "libraries.zmq" with a text each; arrays are command lines.
function told_flat(object, before = "") {
  return Object.entries(object).flatMap(([key, value]) =>
    Array.isArray(value) ? [[before + key, value.join(" ")]]
      : value !== null && typeof value === "object" ? told_flat(value, `${before}${key}.`)
      : [[before + key, `${value}`]]);
}

// "workers 1, 2, 5"; id 0 is a process that never took part.
function who(ids) {
  const members = ids.filter(id => id > 0);
  const text = members.length > 12 ? `${members.slice(0, 12).join(", ")}, …` : members.join(", ");
  return members.length === 0 ? "a newcomer" : `worker${members.length > 1 ? "s" : ""} ${text}`;
}

function fill_environment() {
  const host = by_id("environment"), several = data.environments;
  if (Object.keys(data.environment).length === 0 && several.length === 0)
    return void host.append(html("p", { class: "muted" }, "environment.json cannot be read."));
  const grid = html("div", { class: "environments" });
  const plain = Object.fromEntries(told_flat(data.environment));
  grid.append(html("div", {}, facts_of(plain)));
  for (const { workers, environment } of several) {
    const own = Object.fromEntries(told_flat(environment).filter(([k, v]) => v !== plain[k]));
    grid.append(html("div", {}, html("h3", {}, who(workers)),
      Object.keys(own).length > 0 ? facts_of(own) : html("p", { class: "muted" }, "the same")));
  }
  host.append(grid);
  if (data.environments_left_out > 0)
    host.append(html("p", { class: "muted small" }, `${whole(data.environments_left_out)} newcomers with yet others are left out.`));
}

fill_head();
fill_verdict();
fill_audits();
fill_tiles();
fill_curves();
fill_time();
fill_workers();
fill_arrangement();
fill_step();
fill_events();
fill_environment();
by_id("config").textContent = data.config || "config.toml cannot be read.";
