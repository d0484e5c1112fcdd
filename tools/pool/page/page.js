// The page of a pool: asks the daemon again and again, and shows what it says.
"use strict";

const by_id = id => document.getElementById(id);
let seconds = 3600, data = null, chart = null;

by_id("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
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

// The share of the slots' time, since `begin`, in which a worker had them.
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
  by_id("tiles").replaceChildren(
    tile("jobs", `${count("running")} running`, `${count("waiting")} waiting, ${count("finished")} finished, ${count("failed")} failed`),
    tile("slots", `${used.length} of ${there.length}`, "in use now"),
    tile("used", percent(used_share(begin)), "of the time that slots were there"),
    tile("samples", `${format(running.reduce((sum, job) => sum + job.rate, 0), 3)}/s`, "all jobs, as measured last"));
}

function draw_jobs() {
  const chip = job => html("span", { class: `chip ${kStates[job.state]}` }, job.state);
  const name = job => html("span", {}, html("span", { class: "dot", style: `background:${color_of(job.id)}` }), `${job.id} ${job.name}`);
  const head = [["job", ""], ["", ""], ["workers", "number"], ["step", "number"], ["samples/s", "number"], ["left", "number"], ["why", "fields"]];
  by_id("jobs").replaceChildren(table(head, [...data.jobs].reverse().map(job => [
    name(job), chip(job), `${job.workers} (${job.min}–${job.max})`,
    job.steps > 0 ? `${whole(job.step)} / ${whole(job.steps)}` : whole(job.step),
    job.workers > 0 && job.rate > 0 ? format(job.rate, 4) : "", job.seconds_left === null ? "" : duration(job.seconds_left),
    job.reason || (job.digest ? `digest ${job.digest.slice(0, 16)}` : ""),
  ])));
}

// Samples a second of each job between two notes of its progress, on one grid of times.
function draw_throughput(begin) {
  const points = 240, step = (data.time - begin) / points;
  const times = Array.from({ length: points + 1 }, (_, i) => i * step);
  const series = [];
  for (const job of data.jobs) {
    const notes = data.progress[job.id] ?? [];
    if (notes.length < 2) continue;
    const values = times.map(() => null);
    for (let n = 1; n < notes.length; ++n) {
      const [from, before] = notes[n - 1], [to, after] = notes[n];
      const rate = after > before ? (after - before) * job.batch / (to - from) : 0;
      for (let i = Math.max(0, Math.ceil((from - begin) / step)); i <= points && begin + i * step <= to; ++i)
        values[i] = to - from > 60 ? 0 : rate;
    }
    if (values.some(v => v !== null)) series.push({ name: `${job.id} ${job.name}`, color: color_of(job.id), values });
  }
  if (series.length === 0) series.push({ name: "", color: "var(--line)", values: times.map(() => 0), unnamed: true });
  const changes = {
    series,
    x: { values: times, time: true, format: s => clock(begin + s), tell: i => clock(begin + times[i]) },
  };
  if (chart) chart.draw(changes);
  else chart = new Chart(by_id("throughput"), { title: "samples a second", format, from_zero: true, ...changes });
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
