#include "tools/repro/rerun.h"

#include "elastic/whole_state.h"
#include "tensor/check.h"

namespace elinvar {
namespace {

constexpr PeerId kSelf = 2, kCoordinator = 1;

MemberOptions alone(MemberOptions options) {
  options.self = kSelf;
  options.audit = {};
  return options;
}

std::optional<Checkpoint> newest_checkpoint(const RunRecord& run, int64_t most) {
  std::vector<int64_t> steps = run.checkpoints();
  for (; !steps.empty(); steps.pop_back()) {
    if (steps.back() > most) continue;
    try {
      return run.checkpoint(steps.back());
    } catch (const Failure& damaged) {
      fmt::print(stderr, "{}\n", damaged.what());
    }
  }
  return std::nullopt;
}

// Where the ledger says that the batch changed; with exact scaling nowhere.
std::vector<GenerationScaling::Change> batch_changes(const RunRecord& run, int64_t batch) {
  std::vector<GenerationScaling::Change> changes;
  for (const auto& [step, line] : run.lines()) {
    if (!line.batch_size || *line.batch_size == batch) continue;
    batch = *line.batch_size;
    changes.push_back({step - 1, batch});
  }
  return changes;
}

Digest digest_of(std::vector<Tensor> gradients, const std::vector<Tensor>& terms) {
  gradients.insert(gradients.end(), terms.begin(), terms.end());
  return digest_in_order(gradients).digest;
}

}  // namespace

Rerun::Rerun(const RunRecord& run, Device device, int64_t most)
    : training_(read_run_config(run.path()), device), member_(alone(training_.member())) {
  const std::optional<Checkpoint> from = newest_checkpoint(run, most);
  if (from) training_.job.load(from->state);
  const int64_t first = from ? from->step : 0;
  begin(run, first, first > 0 ? pace_of(from->state) : Pace{.batch = training_.scaling.batch});
}

// What a coordinator says to its first worker.
void Rerun::begin(const RunRecord& run, int64_t first, const Pace& pace) {
  member_.introduce(kCoordinator, nlohmann::json::object());
  member_.receive({.kind = "welcome", .sender = kCoordinator, .body = {{"restore", first}}});
  invariant(member_.next() == Member::Next::load, "a member restores what it is told to");
  Member::Load load = member_.take_load();
  load.pace = pace;
  member_.loaded(load);

  const std::vector<Interval> all = {{0, training_.config().run.virtual_ranks}};
  Generation generation;
  generation.number = 1;
  generation.first_step = first;
  generation.members = {{.id = 1, .peer = kSelf, .endpoint = {}, .share = all, .first_share = all}};
  if (training_.adaptive())
    generation.scaling = GenerationScaling{
        .base_workers = 1, .history = 1, .recorded = batch_changes(run, training_.config().run.batch_size)};
  member_.receive({.kind = "start",
                   .sender = kCoordinator,
                   .body = {{"record", to_json(generation)}, {"completed", nlohmann::json::object()}}});
}

StateDict Rerun::state() const {
  const auto pace = training_.adaptive() ? std::optional(member_.made()) : std::nullopt;
  return whole_state(training_.job.state(), step(), pace);
}

LedgerLine Rerun::advance(const Told& told) {
  if (member_.next() != Member::Next::leaves || member_.last()) fail("the run ends after step {}", step());
  const int64_t step = member_.step();
  const Cursor cursor = training_.cursor(step, member_.pace());
  LedgerLine line;
  line.step = step + 1;
  for (const int vrank : member_.todo()) {
    const Batch batch = training_.loader.batch(cursor, vrank);
    told.batch(vrank, batch);
    told.at(fmt::format("leaf {}", vrank));
    Leaf leaf = training_.leaf(batch, step, vrank);
    told.at("");
    if (!leaf.gradients.empty()) line.leaves[vrank] = digest_of(leaf.gradients, leaf.terms);
    told.at("reduction");
    member_.add(step, vrank, std::move(leaf), 0);
  }
  member_.contribute({});
  const bool complete = member_.reduce() == Member::Progress::complete;
  told.at("");
  invariant(complete, "a member that is alone waits for nobody");
  const Reduced reduced = member_.take_reduced();
  if (training_.adaptive()) line.batch_size = reduced.pace.batch;
  line.batch = reduced.batch;
  line.loss = reduced.loss;
  line.gradient = digest_of(reduced.gradients, reduced.terms);
  told.at("update");
  line.lr = training_.update(step, reduced).lr;
  told.at("");
  member_.advance(nlohmann::json::object());
  member_.receive({.kind = "ack", .sender = kCoordinator, .step = step});
  (void)member_.take_actions();
  (void)member_.take_parts();
  line.state = digest(state());
  return line;
}

}  // namespace elinvar
