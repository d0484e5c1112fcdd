// `train run`: the training loop, whole.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "elastic/session.h"
#include "nn/clip.h"
#include "nn/leaf.h"
#include "nn/running_statistics.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "tools/train/commands.h"
#include "tools/train/environment.h"
#include "tools/train/interrupt.h"
#include "tools/train/job.h"
#include "tools/train/metrics.h"
#include "tools/train/progress.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// A resumed run must be the one that was started, on the same data.
void check_same_run(const fs::path& directory, const Config& config, const Digest& data) {
  if (!fs::exists(directory / "config.toml")) return;
  std::string changes;
  for (const std::string& change : differences(read_config(directory / "config.toml"), config))
    changes += "\n  " + change;
  check(changes.empty(),
        "{} was started with another configuration; resume with the same, or choose another --run-dir:{}",
        directory.string(), changes);
  if (!fs::exists(directory / "environment.json")) return;
  const auto environment =
      nlohmann::json::parse(read_file(directory / "environment.json"), nullptr, /*allow_exceptions=*/false);
  if (environment.is_object() && environment.contains("data"))
    check(environment["data"] == data.hex(),
          "the data are not those that {} was started with; choose another --run-dir", directory.string());
}

Leaf compute_leaf(const Job& job, const Batch& batch, int64_t step, int vrank, std::vector<Statistic>& statistics) {
  if (batch.samples == 0) return {};
  const Rng rng{
      .seed = job.config.run.seed, .step = static_cast<uint32_t>(step), .vrank = static_cast<uint32_t>(vrank)};
  LeafResult result = leaf(*job.network, batch.input, batch.target, job.config.loss, rng, job.config.run.recompute);
  statistics = std::move(result.statistics);
  return {.gradients = std::move(result.gradients),
          .terms = running_terms(statistics),
          .loss_sum = result.loss_sum,
          .count = result.count,
          .correct = result.correct,
          .samples = batch.samples,
          .batch = digest(StateDict{{"input", batch.input}, {"target", batch.target}})};
}

// NUMERICS.md, rule 22. The norm is finite if and only if every element is: squares of floats cannot overflow a double.
void check_finite(int64_t step, double loss, double gradient_norm) {
  constexpr const char* kHint = "a lower learning rate, a longer warm-up or clipping (optimizer.clip_norm) may help";
  if (!std::isfinite(loss))
    fail("step {}: the loss is {}; {}", step + 1, std::isnan(loss) ? "not a number" : "infinite", kHint);
  if (!std::isfinite(gradient_norm)) fail("step {}: the reduced gradient is not finite; {}", step + 1, kHint);
}

int64_t steps_of(const Config& config, int64_t steps_per_epoch) {
  const double epoch_steps = std::ceil(config.run.epochs * static_cast<double>(steps_per_epoch));
  check_setting(epoch_steps <= kMostSteps, "run.epochs", "= {} are {:g} steps; at most {:g} are possible",
                config.run.epochs, epoch_steps, kMostSteps);
  const int64_t steps = config.run.steps > 0 ? config.run.steps : static_cast<int64_t>(epoch_steps);
  check_schedule(config.schedule, steps);
  return steps;
}

struct Outcome {
  double loss = 0;
  bool interrupted = false;
};

Outcome train(Job& job, const std::shared_ptr<const Dataset>& validation, Loader& loader, Session& session,
              int64_t steps, Metrics& metrics) {
  const Config& config = job.config;
  const bool tokens = job.data->vocabulary() != nullptr;
  Progress progress(session.step(), steps, config.run.log_every, tokens ? "tokens" : "samples");
  const Interrupt interrupt;
  Outcome outcome{.loss = metrics.last_loss()};

  const auto validate_if_due = [&] {
    const int64_t step = session.step();
    if (step == 0 || metrics.last_validation() == step || (step != steps && !due(step, config.run.eval_every))) return;
    const Score now = score(job, validation, [&] { return interrupt.requested(); });
    progress.restart_clock();
    if (now.samples == 0) return;  // interrupted: it is made up for when the run goes on
    metrics.validation(step, now);
    progress.line(fmt::format("validation step={} loss={:.6g} accuracy={:.4f} samples={}", step, now.loss, now.accuracy,
                              now.samples));
  };

  validate_if_due();
  while (session.step() < steps && !interrupt.requested()) {
    const int64_t step = session.step();
    std::vector<Statistic> statistics;
    for (const int vrank : session.begin().mine) {
      const Batch batch = loader.batch(step, vrank);
      session.add(vrank, compute_leaf(job, batch, step, vrank, statistics));
    }
    session.reduce();

    const Reduced& reduced = session.reduced();
    const Clipping clipping = clip_by_global_norm(reduced.gradients, config.optimizer.clip_norm);
    check_finite(step, reduced.loss, clipping.norm);
    const double lr = learning_rate(config.schedule, config.optimizer.lr, steps, step);
    job.optimizer->step(job.network->parameters, reduced.gradients, lr, step, clipping.scale);
    update_running_statistics(statistics, reduced.terms, reduced.leaves);
    outcome.loss = reduced.loss;
    progress.step(step + 1, reduced.loss, lr, tokens ? reduced.count : reduced.samples);
    // Before the step counts as made, so that no checkpoint knows more than the metrics.
    metrics.step(step + 1, reduced, lr, clipping.norm, progress.items_per_second(), tokens);
    session.advance();
    validate_if_due();
  }
  outcome.interrupted = session.step() < steps;
  return outcome;
}

// Bytes that are no UTF-8, as file names may hold, are written as replacement characters.
void write_json(const fs::path& path, const nlohmann::ordered_json& json) {
  replace_file(path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

int run(const RunCommand& command) {
  Config config = read_config(command.config, command.overrides);
  const fs::path directory = command.run_dir.empty() ? fs::path("runs") / config.run.name : fs::path(command.run_dir);

  Job job(config);
  const std::shared_ptr<const Dataset> validation = open_split(config, Split::validation);
  const Digest data = digest(*job.data);
  if (command.resume) check_same_run(directory, job.config, data);
  config = job.config;
  Loader loader(job.data, {.seed = config.run.seed,
                           .global_batch = config.run.batch_size,
                           .virtual_ranks = config.run.virtual_ranks,
                           .shuffle = config.reader.shuffle,
                           .augment = true,
                           .threads = config.reader.threads,
                           .prefetch = config.reader.prefetch});
  const int64_t steps = with_places(config.places, [&] { return steps_of(config, loader.steps_per_epoch()); });
  Session session({.directory = directory,
                   .virtual_ranks = config.run.virtual_ranks,
                   .steps = steps,
                   .state_digest_every = config.run.state_digest_every,
                   .checkpoint_every = config.run.checkpoint_every,
                   .keep = config.run.keep,
                   .resume = command.resume},
                  {.view = [&] { return job.state(); }, .load = [&](const StateDict& state) { job.load(state); }});
  for (const std::string& notice : session.notices()) fmt::print(stderr, "{}\n", notice);
  replace_file(directory / "config.toml", to_toml(config));
  nlohmann::ordered_json environment = describe_environment(command.command_line);
  environment["data"] = data.hex();
  write_json(directory / "environment.json", environment);
  Metrics metrics(directory, session.step());

  fmt::print("run {} in {}: {} parameters, {} samples, {} steps of {} over {} virtual ranks\n", config.run.name,
             directory.string(), job.network->parameters.count(), job.data->size(), steps, config.run.batch_size,
             config.run.virtual_ranks);
  fmt::print("numerics={} scaling={} isa={} threads={} seed={}\n", config.run.numerics, config.run.scaling,
             environment["isa"].get<std::string>(), environment["threads"].get<int>(), config.run.seed);
  std::fflush(stdout);
  session.events().write("start",
                         {{"step", session.step()}, {"isa", environment["isa"]}, {"threads", environment["threads"]}});

  nlohmann::ordered_json result;
  try {
    fs::remove(directory / "result.json");  // of an earlier part of the run: from here on it would be wrong
    const Outcome outcome = train(job, validation, loader, session, steps, metrics);
    session.checkpoint();
    const Digest digest = session.state_digest();
    result = {{"status", outcome.interrupted ? "interrupted" : "finished"},
              {"step", session.step()},
              {"steps", steps},
              {"loss", outcome.loss},
              {"digest", digest.hex()}};
    session.events().write(outcome.interrupted ? "interrupted" : "finished",
                           {{"step", session.step()}, {"state", digest.hex()}});
    write_json(directory / "result.json", result);
    if (outcome.interrupted) {
      fmt::print(stderr,
                 "stopped after step {} of {}, with a checkpoint; go on with\n  train run {} --run-dir {} --resume\n",
                 session.step(), steps, command.config, directory.string());
      return 0;
    }
    fmt::print("final step={} loss={:g} digest={}\n", session.step(), outcome.loss, digest.hex());
  } catch (const std::exception& failure) {
    // The failure is what counts; that it also could not be written down (a full disk) adds nothing.
    try {
      session.events().write("failed", {{"step", session.step()}, {"reason", failure.what()}});
      write_json(directory / "result.json",
                 {{"status", "failed"}, {"step", session.step()}, {"steps", steps}, {"reason", failure.what()}});
    } catch (const std::exception&) {
    }
    throw;
  }
  return 0;
}

}  // namespace elinvar
