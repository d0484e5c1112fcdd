// The page of a pool: polls the daemon and shows its answers.
"use strict";

let seconds = 3600, data = null;
const charts = new Map();  // of throughput, by job
const kCharts = 8;

for (const button of by_id("window").children)
  button.addEventListener("click", () => {
    seconds = Number(button.dataset.seconds);
    refresh();
  });
by_id("filter").addEventListener("input", () => draw_log());

const kStates = { finished: "good", failed: "bad", cancelled: "warning", running: "good", waiting: "" };

function table(head, rows) {
  const body = html("tbody");
  for (const row of rows)
    body.append(html("tr", {}, ...row.map((cell, i) => {
      const td = html("td", { class: head[i][1] });
      td.append(cell ?? "–");
      return td;
    })));
  return html("table", {}, html("thead", {}, html("tr", {}, ...head.map(([name, kind]) => html("th", { class: kind }, name)))), body);
}

function tile(what, value, more) {
  return html("div", { class: "tile" }, html("div", { class: "what" }, what), html("div", { class: "value" }, value),
    html("div", { class: "more" }, more));
}

// The fraction of the slots' time since `begin` in which a worker used them.
function used_share(begin) {
  const length = (from, to) => Math.max(0, (to ?? data.time) - Math.max(from, begin));
  const there = data.slots.reduce((sum, s) => sum + length(s.since, s.gone), 0);
  const used = data.workers.reduce((sum, w) => sum + w.slots.length * length(w.from, w.to), 0);
  return there > 0 ? used / there : null;
}

function draw_tiles(begin) {
  const count = state => data.jobs.filter(job => job.state === state).length;
  const there = data.slots.filter(slot => slot.gone === null), used = there.filter(slot => slot.job !== null);
  const running = data.jobs.filter(job => job.workers > 0);
  const errors = data.prediction_errors, trials = errors.ran > 0 ? errors.paid / errors.ran : 0;
  by_id("tiles").replaceChildren(
    tile("jobs", `${count("running")} running`, `${count("waiting")} waiting, ${count("finished")} finished, ${count("failed")} failed`),
    tile("slots", `${used.length} of ${there.length}`, "in use now"),
    tile("used", percent(used_share(begin)), "of the time that slots were there"),
    tile("prediction error", errors.all.count === 0 ? "–" : percent(errors.all.median),
      `the median of ${errors.all.count}; trials took ${percent(trials)}`),
    tile("samples", `${format(running.reduce((sum, job) => sum + job.rate, 0), 3)}/s`, "all jobs, as measured last"));
}

function draw_jobs() {
  const chip = job => html("span", { class: `chip ${kStates[job.state]}` }, job.state);
  const requests = job => [
    ...(job.priority !== 0 ? [`priority ${job.priority}`] : []),
    ...(job.deadline !== null ? [`due in ${job.deadline > data.time ? duration(job.deadline - data.time) : "no time"}`] : []),
    ...(job.width > 1 ? [`${job.width} slots a worker`] : []), ...(job.recompute ? ["recomputes"] : []), ...(job.failures > 0 ? [`failed ${job.failures === 1 ? "once" : `${job.failures} times`}`] : []),
  ].join(", ");
  const name = job => html("span", {}, html("span", { class: "dot", style: `background:${color_of(job.id)}` }),
    `${job.id} ${job.name} `, html("span", { class: "muted small" }, requests(job)));
  const planned = new Map(data.log.filter(line => line.what === "plan" && line.job !== null).map(line => [line.job, line.reason]));
  const head = [["job", "nowrap"], ["", ""], ["workers", "number"], ["step", "number"], ["samples/s", "number"], ["left", "number"], ["why", "fields"]];
  if (data.jobs.length === 0)
    return by_id("jobs").replaceChildren(html("p", { class: "muted" }, "No job yet: pool submit CONFIG.toml --dir DIR adds one."));
  by_id("jobs").replaceChildren(table(head, [...data.jobs].reverse().map(job => [
    name(job), chip(job), `${job.workers} (${job.min}–${job.max})`,
    job.steps > 0 ? `${whole(job.step)} / ${whole(job.steps)}` : whole(job.step),
    job.workers > 0 && job.rate > 0 ? format(job.rate, 4) : "", job.seconds_left === null ? "" : duration(job.seconds_left),
    job.reason || (job.digest && job.ended !== null ? `digest ${job.digest.slice(0, 16)}` : job.workers > 0 ? planned.get(job.id) ?? "" : ""),
  ])));
}

// A job's samples per second between progress records that are not too close, on one grid of times; null if it has
// none.
function throughput_of(job, times, begin, step) {
  const notes = [], values = times.map(() => null), spans = data.workers.filter(w => w.job === job.id);
  const works = time => spans.some(w => w.from <= time && (w.to ?? data.time) >= time);
  for (const note of data.progress[job.id] ?? [])
    if (notes.length === 0 || note[0] - notes.at(-1)[0] >= 4 * step) notes.push(note);
  for (let n = 1; n < notes.length; ++n) {
    const [from, before] = notes[n - 1], [to, after] = notes[n];
    const first = Math.max(0, Math.ceil((from - begin) / step)), last = Math.min(times.length - 1, Math.floor((to - begin) / step));
    const at_work = times.map((time, i) => first <= i && i <= last && works(begin + time));
    // fraction of the time between the two records
    const share = at_work.filter(Boolean).length / Math.max(1, last - first + 1);
    const rate = after > before && share > 0 ? (after - before) * job.batch / (to - from) / share : 0;
    for (let i = first; i <= last; ++i) values[i] = at_work[i] ? rate : 0;
  }
  return values.some(v => v !== null) ? values : null;
}

// Draws a chart for each job, because samples of different jobs are not comparable: running jobs first, then the
// latest.
function draw_throughput(begin) {
  const host = by_id("throughput"), points = 240, step = (data.time - begin) / points;
  const times = Array.from({ length: points + 1 }, (_, i) => i * step), shown = new Set();
  const order = [...data.jobs].sort((a, b) => (b.workers > 0) - (a.workers > 0) || b.id - a.id);
  for (const job of order) {
    const values = shown.size < kCharts ? throughput_of(job, times, begin, step) : null;
    if (!values) continue;
    shown.add(job.id);
    const changes = {
      series: [{ name: "", color: color_of(job.id), values, unnamed: true }],
      x: {
        values: times, time: true, ticks: count => clock_ticks(begin, data.time - begin, count),
        format: s => short_clock(begin + s, data.time - begin), tell: i => clock(begin + times[i]),
      },
    };
    if (!charts.has(job.id)) {
      const place = html("div", { class: "chart" });
      host.append(place);
      charts.set(job.id, new Chart(place, { title: `${job.id} ${job.name}, samples a second`, format, from_zero: true, ...changes }));
    } else charts.get(job.id).draw(changes);
  }
  for (const [id, chart] of charts)
    if (!shown.has(id)) {
      chart.host.remove();
      Chart.all = Chart.all.filter(other => other !== chart);
      charts.delete(id);
    }
  by_id("no-throughput").hidden = shown.size > 0;
}

function draw_log() {
  if (!data) return;
  const wanted = by_id("filter").value.toLowerCase();
  const rows = [...data.log].reverse()
    .map(line => [clock(line.time), line.job === null ? "" : `job ${line.job}`, line.what, line.where, line.reason])
    .filter(row => wanted === "" || row.join(" ").toLowerCase().includes(wanted));
  by_id("log").replaceChildren(table([["time", "nowrap"], ["job", "nowrap"], ["what", ""], ["where", ""], ["why", "fields"]], rows));
}

function draw() {
  const first = Math.min(data.time - 60, ...data.slots.map(s => s.since), ...data.workers.map(w => w.from));
  const begin = Math.max(data.time - seconds, first);
  for (const button of by_id("window").children)
    button.setAttribute("aria-pressed", Number(button.dataset.seconds) === seconds);
  by_id("when").textContent = new Date(1000 * data.time).toLocaleString();
  by_id("status").textContent = data.daemon ? "served" : "no daemon";
  by_id("status").className = `chip ${data.daemon ? "good" : "bad"}`;
  draw_tiles(begin);
  draw_jobs();
  draw_machines(by_id("machines"), data, begin);
  draw_throughput(begin);
  draw_log();
}

async function refresh() {
  const problems = by_id("problems");
  try {
    const answer = await fetch(`/data.json?window=${seconds}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`the daemon answers ${answer.status}`);
    data = await answer.json();
    problems.hidden = true;
    draw();
  } catch (error) {
    problems.hidden = false;
    problems.replaceChildren(html("p", {}, `No news: ${error.message}. The daemon may have ended; jobs go on.`));
  }
}

refresh();
setInterval(refresh, 2000);
