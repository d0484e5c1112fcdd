#include "tools/training/report.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "elastic/protocol/plan.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tools/cli/program_beside.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/environment.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kEventsShown = 8;  // events that `ctl status` shows
constexpr int64_t kMostAhead = 100;
constexpr size_t kMostShown = size_t{16} << 20;
// The largest age of facts at arrival; facts that are repeated later say nothing about speed.
constexpr Seconds kOldest = 2 * kHeartbeat;

void write_json(const fs::path& path, const nlohmann::ordered_json& json) {
  replace_file(path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void check_same_run(const fs::path& directory, const Config& config, const Digest& data) {
  if (!fs::exists(directory / "config.toml")) return;
  std::string changes;
  for (const std::string& change : differences(read_config(directory / "config.toml"), config))
    changes += "\n  " + change;
  check(
      changes.empty(),
      "{} was started with another configuration, that of its config.toml; go on with the same, or choose another run "
      "directory:{}",
      directory.string(), changes);
  if (!fs::exists(directory / "environment.json")) return;
  const auto environment = parse_json(read_file(directory / "environment.json"));
  if (environment.is_object() && environment.contains("data"))
    check(environment["data"] == data.hex(),
          "the data are not those that {} was started with; choose another --run-dir", directory.string());
}

Report::Report(const JobOptions& options, const Config& config, RunDirectory& directory, Seconds began)
    : options_(options), config_(config), directory_(directory), goodput_(began) {}

void Report::begin(const WorkerInfo& about, const std::string& endpoint) {
  const fs::path& path = directory_.path();
  steps_ = about.steps;
  tokens_ = about.tokens;
  accuracy_ = about.accuracy;
  const Config resolved = parse_config(about.config, "config.toml");
  replace_file(path / "config.toml", to_toml(resolved));
  nlohmann::ordered_json environment(*about.environment);
  environment["command"] = options_.command_line;
  environment["data"] = about.data.hex();
  const fs::path of_before = path / "environment.json";
  const Json before =
      fs::exists(of_before) ? Json::parse(read_file(of_before), nullptr, /*allow_exceptions=*/false) : Json();
  // Relative paths of the configuration begin in this folder. A coordinator that takes over may run in another one.
  if (!options_.takes_over) environment["folder"] = fs::current_path().string();
  else if (before.is_object() && before.contains("folder")) environment["folder"] = before["folder"];
  if (options_.resume && !options_.takes_over && before.is_object()) {
    if (build_of(before) != build_of(*about.environment)) {
      const std::string change =
          fmt::format("going on with another build of this program, {}, than the part before, {}",
                      name_of_build(*about.environment), name_of_build(before));
      fmt::print(stderr, "{}\n", change);
      directory_.events().write("other_build", {{"reason", change}});
    }
  }
  write_json(path / "environment.json", environment);
  remove_tree(path / "result.json");  // left by an earlier part of the run; it would be wrong from here on

  const int64_t first = directory_.start().step;
  reported_ = directory_.members_alive() ? directory_.facts().recorded() : first;
  metrics_.emplace(path, reported_);
  if (config_.tensorboard.any()) tensorboard_.emplace(path, directory_.term().number(), reported_);
  shown_ = reported_;
  loss_ = reported_ > 0 ? directory_.facts().line(reported_).loss : std::numeric_limits<double>::quiet_NaN();
  say(stdout, "run {} in {}: {} parameters, {} samples, {} steps of {} over {} virtual ranks\n", config_.run.name,
      path.string(), about.parameters, about.samples, steps_, config_.run.batch_size, config_.run.virtual_ranks);
  say(stdout, "numerics={} scaling={} device={} isa={} threads={} seed={} workers={} endpoint={}\n",
      config_.run.numerics, config_.run.scaling, environment["device"].get<std::string>(),
      environment["isa"].get<std::string>(), environment["threads"].get<int>(), config_.run.seed, options_.workers,
      endpoint);
  if (config_.run.batch_size > about.samples)
    say(stderr, "run.batch_size = {} is more than the {} samples: each step takes all of them, and is an epoch\n",
        config_.run.batch_size, about.samples);
  progress_.emplace(first, steps_, config_.run.log_every, tokens_ ? "tokens" : "samples");
}

void Report::steps(const std::vector<StepFacts>& steps, Seconds now) {
  for (const StepFacts& facts : steps) step(facts, now);
  metrics_->write();
  if (tensorboard_) tensorboard_->write();
}

void Report::step(const StepFacts& facts, Seconds now) {
  const int64_t step = facts.step;
  const StepReport& report = facts.report;
  if (report.validation && metrics_->last_validation() < step) {
    const ValidationScore& score = *report.validation;
    metrics_->validation(step, score);
    last_["validation_loss"] = score.loss;
    std::string metrics;
    for (const auto& [name, value] : score.metrics) {
      last_["validation_" + name] = value;
      metrics += fmt::format(" {}={:.4f}", name, value);
    }
    if (config_.tensorboard.scalars) tensorboard_->add(step, summary_of(score).bytes());
    progress_->line(
        fmt::format("validation step={} loss={:.6g}{} samples={}", step, score.loss, metrics, score.samples));
  }
  evaluations_.clear();
  if (!facts.update || step != reported_) return;
  const UpdateFacts& update = *facts.update;
  ++reported_;
  if (!report.readers.empty()) event("readers", {{"step", step + 1}, {"reason", report.readers}});
  if (report.validation) goodput_.note(Goodput::Cause::evaluating);
  if (looks_.erase(step + 1) > 0) goodput_.note(Goodput::Cause::evaluating);
  if (due(step, config_.run.checkpoint_every)) goodput_.note(Goodput::Cause::checkpointing);
  generation_ = std::max(generation_, update.generation);
  made_ = std::max(made_, now - std::clamp(facts.age, 0.0, kOldest));
  goodput_.step(made_, generation_);
  loss_ = update.loss;
  progress_->step(report.position.value_or(step + 1), loss_, report.lr, tokens_ ? update.count : update.samples, made_);
  const StepMetrics metrics{
      .loss = loss_,
      .lr = report.lr,
      .gradient_norm = report.gradient_norm,
      .items_per_second = progress_->items_per_second(),
      .tokens = tokens_,
      .reduce_seconds = update.reduce_seconds,
      .leaf_seconds = update.seconds,
      .generation = generation_,
      .goodput = goodput_.share(now),
      .ago = now - made_,
      .accuracy = accuracy_ ? std::optional(static_cast<double>(update.correct) / static_cast<double>(update.count))
                            : std::nullopt};
  metrics_->step(step + 1, metrics);
  if (metrics.accuracy) last_["accuracy"] = *metrics.accuracy;
  last_.update(
      {{"lr", report.lr}, {"gradient_norm", metrics.gradient_norm}, {"reduce_seconds", metrics.reduce_seconds}});
  ++steps_made_;
  samples_ += update.samples;
  targets_ += update.count;
  if (config_.tensorboard.scalars) tensorboard_->add(step + 1, summary_of(metrics).bytes());
}

// A summary arrives some steps before the facts of its step, or again after steps are repeated.
void Report::shown(int64_t step, std::string_view summary) {
  if (!tensorboard_ || step <= shown_ || step > reported_ + kMostAhead || summary.size() > kMostShown) return;
  shown_ = step;
  if (step > reported_) looks_.insert(step);
  tensorboard_->add(step, summary);
  tensorboard_->write();
}

void Report::tell(const std::string& text) {
  if (progress_) return progress_->line(text);
  say(stdout, "{}\n", text);
}

// Tells the user about a machine that computes wrongly.
void Report::tell_of_audit(const Json& found) {
  std::string line =
      fmt::format("audit of update {}: {}", found.at("step").get<int64_t>(), found.at("reason").get<std::string>());
  const std::string verdict = found.at("verdict").get<std::string>();
  if (verdict == "guilty")
    for (const int worker : found.at("workers").get<std::vector<int>>())
      line += fmt::format("\naudit: worker {} is evicted; its machine should be looked at", worker);
  else if (verdict != "agreed") line += "; " + verdict;
  progress_->line(line);
}

// Tells the user that workers have nothing to do, once for each number of them.
void Report::tell_of_idle_workers(const Json& generation) {
  const auto workers = static_cast<int>(generation.at("members").size());
  const int ranks = config_.run.virtual_ranks, most = options_.arrangement.replica();
  const std::vector<int> sizes =
      replica_sizes(limits_of(options_.arrangement, static_cast<int>(config_.virtual_shards())), workers);
  int idle = 0;
  for (size_t replica = static_cast<size_t>(ranks); replica < sizes.size(); ++replica) idle += sizes[replica];
  if (idle > 0 && idle != idle_)
    tell(fmt::format(
        "{} of {} workers {} nothing to do: each{} needs a virtual rank, and run.virtual_ranks is {}; "
        "another number changes the result, so it needs a new run",
        idle, workers, idle == 1 ? "has" : "have", most > 1 ? fmt::format(" group of {}", most) : "", ranks));
  idle_ = idle;
}

// Tells the user that the job holds until something changes outside it.
void Report::tell_of_hold(const Json& hold) {
  const auto seconds = [&] { return duration_text(hold.at("seconds").get<double>()); };
  if (hold.contains("min_workers"))
    progress_->line(fmt::format("holding: {} workers are left, {} are needed; {} join brings another",
                                hold.at("workers").get<int>(), hold.at("min_workers").get<int>(), program_name()));
  else if (hold.contains("seconds"))
    progress_->line(fmt::format("holding: {}; without a word from them the run ends in {} (--hold)",
                                hold.at("reason").get<std::string>(), seconds()));
}

// Shows the evaluation that will end last. A worker evaluates the share of each of its virtual ranks by itself.
void Report::works(PeerId worker, const Work& work, Seconds now) {
  if (work.parts == 0 || !progress_) return;
  Evaluation& own = evaluations_.try_emplace(worker, Evaluation{.since = now, .first = work.part}).first->second;
  if (work.part < own.part || work.parts != own.parts) own = {.since = now, .first = work.part};
  own.seen = now;
  own.part = work.part;
  own.parts = work.parts;
  const auto seconds_left = [](const Evaluation& e) {
    const auto done = static_cast<double>(e.part - e.first), left = static_cast<double>(e.parts - e.part + 1);
    return done > 0 ? (e.seen - e.since) / done * left : std::numeric_limits<double>::infinity();
  };
  const Evaluation* last = &own;
  for (const auto& [peer, each] : evaluations_)
    if (seconds_left(each) > seconds_left(*last)) last = &each;
  progress_->evaluation(last->part, last->parts, seconds_left(*last));
}

void Report::event(const std::string& name, const Json& fields, Seconds now) {
  if (name == "audit") tell_of_audit(fields);
  if (name == "hold") tell_of_hold(fields);
  if (name == "generation") tell_of_idle_workers(fields);
  if (name == "fence") goodput_.note(Goodput::Cause::recovering, now);
  if (name == "hold") goodput_.note(Goodput::Cause::holding, now);
  if (name == "hello" || name == "ready" || name == "switched") goodput_.note(Goodput::Cause::changing, now);
  ++event_counts_[name];
  events_.push_back(directory_.events().write(name, nlohmann::ordered_json(fields)));
  if (events_.size() > kEventsShown) events_.pop_front();
}

Json Report::status(Seconds now) const {
  Json status = {{"run", config_.run.name},
                 {"directory", fs::absolute(directory_.path()).string()},
                 {"loss", loss_},
                 {"rate", progress_->items_per_second()},
                 {"unit", progress_->unit()},
                 {"seconds_left", progress_->seconds_left()},
                 {"goodput", goodput_.summary(now)},
                 {"events", events_},
                 {"event_counts", event_counts_},
                 {"steps_made", steps_made_},
                 {"samples", samples_},
                 {"targets", targets_}};
  status.update(last_);
  return status;
}

void Report::end(bool finished, int64_t step, Seconds now, const std::string& unsaved) {
  goodput_.finish(now);
  directory_.facts().sync();
  const std::optional<Digest> state = directory_.facts().states().at(step);
  nlohmann::ordered_json result = {
      {"status", finished ? "finished" : "interrupted"}, {"step", step}, {"steps", finished ? step : steps_}};
  result["tenure"] = directory_.term().number();
  result["loss"] = loss_;
  result["digest"] = state ? state->hex() : "";
  result["goodput"] = goodput_.summary(now);
  event(finished ? "finished" : "interrupted",
        {{"step", step}, {"state", result["digest"]}, {"goodput", result["goodput"]}});
  write_json(directory_.path() / "result.json", result);
  if (finished) {
    say(stdout, "final step={} loss={:g} digest={}\n", step, loss_, result["digest"].get<std::string>());
    return;
  }
  if (unsaved.empty())
    say(stderr, "stopped after step {} of {}, with a checkpoint; go on with\n  {} resume {}\n", step, steps_,
        program_name(), directory_.path().string());
  else say(stderr, "stopped before the workers were ready, without another checkpoint: {}\n", unsaved);
}

void Report::keep_result() {
  const fs::path path = directory_.path() / "result.json";
  try {
    if (!fs::exists(path)) return;
    auto result = parse_json<nlohmann::ordered_json>(read_file(path));
    if (!result.is_object() || result.value("tenure", int64_t{0}) != directory_.term().number() - 1) return;
    result["tenure"] = directory_.term().number();
    write_json(path, result);
  } catch (const std::exception&) {  // what prevented the beginning is what counts
  }
}

void Report::restore() {
  if (metrics_) metrics_->restore();
}

// The failure is what counts. If it cannot be written (a full disk), that second error adds nothing.
void Report::fail(const std::string& reason) {
  try {
    event("failed", {{"step", reported_}, {"reason", reason}});
    nlohmann::ordered_json result = {{"status", "failed"}, {"step", reported_}, {"steps", steps_}, {"reason", reason}};
    result["tenure"] = directory_.term().number();
    const std::string& contradiction = directory_.facts().ledger().contradiction();
    if (!contradiction.empty()) result["contradiction"] = contradiction;
    write_json(directory_.path() / "result.json", result);
  } catch (const std::exception&) {
  }
}

}  // namespace elinvar
