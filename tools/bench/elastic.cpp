#include "tools/bench/elastic.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "tensor/base/check.h"
#include "tensor/base/threads.h"
#include "tools/bench/elastic_job.h"
#include "tools/bench/job_configs.h"
#include "tools/bench/job_files.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr int kSettle = 5;           // steps between changes
constexpr int kDeaths = 20;          // at least; fewer for GPT-2, whose steps are long
constexpr int kLongSteps = 12;       // steps that overhead is measured over, at least
constexpr double kLongSeconds = 15;  // seconds that overhead is measured over, at least

// A network, and more options of `train run`.
struct Case {
  std::string network;
  std::vector<std::string> options;

  std::string title() const {
    return options.empty() ? network : fmt::format("{} {}", network, fmt::join(options, " "));
  }
};

double most(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }
double ms(double seconds) { return rounded(1e3 * seconds); }

// How much longer than `usual` the steps that ended within (from, to] took: the longest, and all together.
struct Excess {
  double longest = 0, sum = 0, seconds = 0;
};
Excess excess(const ElasticJob& job, double from, double to, double usual) {
  Excess e;
  for (size_t i = 1; i < job.steps().size(); ++i) {
    if (job.steps()[i].time <= from || job.steps()[i].time > to) continue;
    const double seconds = job.steps()[i].time - job.steps()[i - 1].time;
    e.longest = std::max(e.longest, seconds - usual);
    e.sum += seconds - usual;
    e.seconds += usual;
  }
  return e;
}

// usual_reduce: the median time that the first member waited for others in its last steps. stood_still: how much longer
// than `usual` it waited in the steps that ended within (from, to], in total.
double usual_reduce(const ElasticJob& job, size_t last) {
  std::vector<double> reduce;
  for (auto step = job.steps().end() - static_cast<long>(last); step != job.steps().end(); ++step)
    reduce.push_back(step->reduce_seconds);
  return median(reduce);
}
double stood_still(const ElasticJob& job, double from, double to, double usual) {
  double sum = 0;
  for (const ElasticJob::Step& step : job.steps())
    if (step.time > from && step.time <= to) sum += std::max(0.0, step.reduce_seconds - usual);
  return sum;
}

// Returns when the n-th step after `time` ended.
double step_after(ElasticJob& job, double time, size_t n) {
  size_t first = 0;
  job.await("a step", [&] {
    while (first < job.steps().size() && job.steps()[first].time <= time) ++first;
    return first + n <= job.steps().size();
  });
  return job.steps()[first + n - 1].time;
}

void run_join(const Case& of, int repeat, Report& report) {
  const std::string& name = of.network;
  const Folder folder;
  ElasticJob job(folder.path, config_of(name, short_steps(name), folder.path, 0), 1, 1, /*pinned=*/true, of.options);
  std::vector<double> waits, copy_waits, longest, slower, joins, leaves, leave_steps, leave_waits, undisturbed;
  job.await_steps(kSettle);
  for (int i = 0; i < repeat; ++i) {
    job.await_steps(kSettle);
    const double alone = job.step_seconds(kSettle), reduce_alone = usual_reduce(job, kSettle);
    const std::vector<ElasticJob::Step>& steps = job.steps();
    undisturbed.push_back(excess(job, steps[steps.size() - 1 - kSettle].time, steps.back().time, alone).longest);
    const size_t before = job.events_so_far();
    const double start = now_seconds();
    Process joiner = job.join(1, 1);
    const double hello = job.events()[job.await_event("hello", before)].time;
    const size_t part = job.await_event("switched", before);
    const double switched = job.events()[part].time;
    const double settled = step_after(job, switched, 2);
    const Excess meanwhile = excess(job, hello, settled, alone);
    const Excess learning = excess(job, hello, switched, alone);
    longest.push_back(meanwhile.longest);
    slower.push_back(learning.seconds > 0 ? 100 * learning.sum / learning.seconds : 0);
    joins.push_back(switched - start);
    double copy = 0;
    for (size_t e = before; e < job.events().size(); ++e)
      if (job.events()[e].name() == "fed")
        copy = std::max(copy, job.events()[e].fields.at("wait_seconds").get<double>());
    copy_waits.push_back(copy);

    job.await_steps(kSettle);
    const double together = job.step_seconds(kSettle - 1);
    waits.push_back(copy + stood_still(job, hello, switched, reduce_alone) +
                    stood_still(job, switched, settled, usual_reduce(job, kSettle - 1)));
    const double asked = now_seconds();
    joiner.signal(SIGTERM);
    const double left = job.events()[job.await_event("left", part)].time;
    if (const int code = joiner.wait(); code != 0) fail("the worker that left ended with exit code {}", code);
    leaves.push_back(now_seconds() - asked);
    leave_steps.push_back((left - asked) / together);
    leave_waits.push_back(excess(job, asked, step_after(job, left, 2), std::max(alone, together)).longest);
  }
  report.add(of.title() + " join, others wait", median(waits), 0, 0, 0, "",
             {{"most_ms", ms(most(waits))},
              {"copy_waits_ms", ms(median(copy_waits))},
              {"longest_step_ms", ms(median(longest))},  // excess over the usual step
              {"longest_before_ms", ms(median(undisturbed))},
              {"slower_percent", rounded(median(slower))},
              {"step_ms", ms(job.step_seconds(kSettle))}});
  report.add(of.title() + " join, until it takes part", median(joins), 0, 0, 0, "", {{"most_ms", ms(most(joins))}});
  report.add(of.title() + " leave, until it is gone", median(leaves), 0, 0, 0, "",
             {{"most_ms", ms(most(leaves))},
              {"steps", rounded(median(leave_steps))},
              {"others_wait_ms", ms(median(leave_waits))}});
}

// Seconds since one of two workers was sent the signal.
struct Losses {
  std::vector<double> again, step;  // until the other continues; until the interrupted step is done
  double step_seconds = 0;
  int64_t states_lost = 0;  // with ZeRO: the job went back to its start
};

// Whether a generation begins after a loss. Workers may also get other shares at any time.
bool follows_a_loss(const nlohmann::json& generation) {
  const std::string reason = generation.at("reason");
  return reason.starts_with("lost worker") || reason == "start";
}

Losses lose_workers(const Case& of, int times, int signal) {
  const std::string& name = of.network;
  const Folder folder;
  ElasticJob job(folder.path, config_of(name, short_steps(name), folder.path, 0), 2, 1, /*pinned=*/true, of.options);
  Losses losses;
  std::map<int, int> cores;  // core of each worker
  for (const ElasticJob::Worker& worker : job.workers()) cores[worker.id] = static_cast<int>(cores.size());
  std::map<pid_t, Process> joined;
  job.await_steps(kSettle);
  for (int i = 0; i < times; ++i) {
    job.await_steps(2);
    const std::vector<ElasticJob::Worker> workers = job.workers();
    const ElasticJob::Worker victim = workers[static_cast<size_t>(i) % workers.size()];
    const size_t before = job.events_so_far();
    const double struck = now_seconds();
    ::kill(victim.pid, signal);
    const double generation = job.events()[job.await_event("generation", before, follows_a_loss)].time;
    losses.again.push_back(generation - struck);
    losses.step.push_back(step_after(job, generation, 1) - struck);

    ::kill(victim.pid, SIGKILL);
    joined.erase(victim.pid);
    const size_t after = job.events_so_far();
    Process joiner = job.join(cores[victim.id], 1);
    const pid_t pid = joiner.pid();
    joined.emplace(pid, std::move(joiner));
    const size_t switched = job.await_event("switched", after);
    // With ZeRO the newcomer gets its part of the state in its first step. If the other worker dies before its end,
    // part of the state is lost.
    const int64_t first = job.events()[switched].fields.at("step");
    job.await("the newcomer's first step", [&] { return !job.steps().empty() && job.steps().back().step > first; });
    for (const ElasticJob::Worker& worker : job.workers())
      if (worker.pid == pid) cores[worker.id] = cores[victim.id];
  }
  losses.step_seconds = job.step_seconds(3);
  for (const ElasticJob::Event& event : job.events()) losses.states_lost += event.name() == "state_lost";
  return losses;
}

void run_death(const Case& of, int repeat, Report& report) {
  const std::string& name = of.network;
  const int deaths = name == "gpt2" ? repeat : std::max(repeat, kDeaths);
  Losses losses = lose_workers(of, deaths, SIGKILL);
  std::vector<double>& again = losses.again;
  std::sort(again.begin(), again.end());
  const size_t p99 =
      std::min(again.size() - 1, static_cast<size_t>(std::ceil(0.99 * static_cast<double>(again.size()))) - 1);
  report.add(of.title() + " kill -9, until others go on", median(again), 0, 0, 0, "",
             {{"p99_ms", ms(again[p99])}, {"deaths", deaths}, {"states_lost", losses.states_lost}});
  report.add(of.title() + " kill -9, until the step is done", median(losses.step), 0, 0, 0, "",
             {{"most_ms", ms(most(losses.step))}, {"step_ms", ms(losses.step_seconds)}});
}

void run_hang(const Case& of, int repeat, Report& report) {
  const Losses losses = lose_workers(of, repeat, SIGSTOP);
  report.add(of.title() + " kill -STOP, until others go on", median(losses.again), 0, 0, 0, "",
             {{"most_ms", ms(most(losses.again))}});
}

void run_checkpoint(const Case& of, int repeat, Report& report) {
  const std::string& name = of.network;
  const Folder folder;
  const int every = name == "resnet20" ? 40 : 10;
  ElasticJob job(folder.path, config_of(name, short_steps(name), folder.path, every), 1, usable_threads(),
                 /*pinned=*/false, of.options);
  std::vector<double> waits, copies, longer, lost, written;
  double megabytes = 0;
  size_t at = 0;
  for (int i = 0; i < repeat; ++i, ++at) {
    at = job.await_event("checkpoint", at, [](const nlohmann::json& e) { return e.contains("copy_seconds"); });
    const ElasticJob::Event event = job.events()[at];
    const double committed = step_after(job, event.time, 1);
    const int64_t step = event.fields.at("step");
    const auto due =
        std::find_if(job.steps().begin(), job.steps().end(), [&](const auto& s) { return s.step == step; });
    std::vector<double> others;
    for (auto s = job.steps().begin() + 1; s <= due; ++s) others.push_back(s->time - (s - 1)->time);
    const double usual = median(
        std::vector<double>(others.end() - std::min<long>(every - 2, static_cast<long>(others.size())), others.end()));
    waits.push_back(event.fields.at("wait_seconds"));
    copies.push_back(event.fields.at("copy_seconds"));
    longer.push_back((due + 1)->time - due->time - usual);
    lost.push_back(excess(job, due->time, committed, usual).sum);
    written.push_back(event.time - due->time);
    megabytes = 0;
    std::error_code replaced;
    for (const auto& file : fs::recursive_directory_iterator(folder.path + "/run/checkpoints", replaced))
      if (file.path().extension() == ".safetensors")
        megabytes = std::max(megabytes, 1e-6 * static_cast<double>(file.file_size(replaced)));
  }
  report.add(of.title() + " checkpoint, the loop waits", median(waits), 0, 0, 0, "",
             {{"most_ms", ms(most(waits))},
              {"copy_ms", ms(median(copies))},
              {"longer_ms", ms(median(longer))},
              {"lost_ms", ms(median(lost))},
              {"written_ms", ms(median(written))},
              {"mb", rounded(megabytes)},
              {"step_ms", ms(job.step_seconds(static_cast<size_t>(every) - 2))}});
}

void run_restart(const Case& of, int repeat, Report& report) {
  const std::string& name = of.network;
  const Folder folder;
  ElasticJob job(folder.path, config_of(name, short_steps(name), folder.path, 0), 1, 1, /*pinned=*/true, of.options);
  std::vector<double> restarts;
  for (int i = 0; i < repeat; ++i) {
    job.await_steps(kSettle);
    const double usual = job.step_seconds(kSettle - 1);
    const double asked = now_seconds();
    job.ctl({"stop"});
    if (job.wait() != 0) fail("the job that was stopped ended with an error");
    (void)job.events_so_far();  // reads its last steps, so that they do not count for the resumed job
    const double ended = now_seconds();
    job.resume();
    restarts.push_back(step_after(job, ended, 1) - asked - usual);
  }
  report.add(of.title() + " stop, checkpoint, restart", median(restarts), 0, 0, 0, "",
             {{"most_ms", ms(most(restarts))}});
}

void overhead(const Case& of, const Sizes& sizes, int repeat, Report& report) {
  const std::string& name = of.network;
  for (const int workers : {1, 2}) {
    const Folder folder;
    ElasticJob job(folder.path, config_of(name, sizes, folder.path, 0), workers, 1, /*pinned=*/true, of.options);
    std::vector<pid_t> pids;
    for (const ElasticJob::Worker& worker : job.workers()) pids.push_back(worker.pid);
    job.await_steps(2);
    // control: the coordinator, and the workers' listeners, copiers and ZeroMQ threads. work: the threads that compute.
    const auto used = [&] {
      std::pair<double, double> control_and_work;
      auto& [control, work] = control_and_work;
      for (const auto& [thread, s] : processor_seconds(job.coordinator())) control += s;
      for (const pid_t pid : pids)
        for (const auto& [thread, s] : processor_seconds(pid))
          (thread == "listener" || thread == "copier" || thread.starts_with("ZMQ") ? control : work) += s;
      return control_and_work;
    };
    const auto [control_before, work_before] = used();
    const double start = now_seconds();
    const size_t first = job.steps().size();
    do job.await_steps(static_cast<size_t>(std::max(repeat, kLongSteps)));
    while (now_seconds() - start < kLongSeconds);
    const auto [control, work] = used();
    const double wall = now_seconds() - start;
    std::vector<double> reduce;
    for (size_t i = first; i < job.steps().size(); ++i) reduce.push_back(job.steps()[i].reduce_seconds);
    const double step = job.step_seconds(job.steps().size() - first);
    const auto count = static_cast<double>(job.steps().size() - first);
    OrderedJson more = {{"threads_per_mille", rounded(1e3 * (control - control_before) / wall)},
                        {"threads_ms", ms((control - control_before) / count)},
                        {"work_ms", ms((work - work_before) / count)}};
    if (workers > 1) more["reduce_percent"] = rounded(100 * median(reduce) / step);
    report.add(fmt::format("{}, batch {}, of {} worker{}", of.title(), sizes.batch, workers, workers > 1 ? "s" : ""),
               step, 0, 0, 0, "", more);
  }
}

void run_overhead(const Case& of, int repeat, Report& report) {
  const std::string& name = of.network;
  Sizes sizes = usual_steps(name);
  overhead(of, sizes, repeat, report);
  if (name != "resnet20") return;
  sizes.batch = 32;  // steps take about a tenth of a second
  overhead(of, sizes, repeat, report);
}

struct Section {
  std::string name;
  void (*run)(const Case&, int, Report&);
};
const std::vector<Section>& sections() {
  static const std::vector<Section> all{{"join", run_join},       {"death", run_death},
                                        {"hang", run_hang},       {"checkpoint", run_checkpoint},
                                        {"restart", run_restart}, {"overhead", run_overhead}};
  return all;
}

}  // namespace

std::vector<std::string> elastic_sections() {
  std::vector<std::string> names;
  for (const Section& section : sections()) names.push_back(section.name);
  return names;
}

void run_elastic(const std::string& section, const std::string& network, const std::vector<std::string>& options,
                 int repeat, Report& report) {
  for (const Section& s : sections())
    if (s.name == section) s.run({network, options}, repeat, report);
}

}  // namespace elinvar::bench
