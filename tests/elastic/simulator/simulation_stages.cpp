// The simulator: passes of rank gradients through the stages of a model replica (pipeline parallelism). What a pass
// gives is a chain of hashes of the state, the step, the virtual rank and all segments up to there, so a member finds a
// value that is wrong or of another pass.
#include <algorithm>
#include <cstring>

#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

namespace {

// What a segment gives for an input.
uint64_t through(uint64_t input, uint64_t state, const ScalingState& scaling_state, int64_t step, int vrank,
                 int segment, bool backward) {
  const auto place = static_cast<uint64_t>(((step * 100 + vrank) * 100 + segment) * 2 + (backward ? 1 : 0));
  return mix(input ^
             mix(state ^ mix(place ^ static_cast<uint64_t>(scaling_state.samples * 1000 + scaling_state.batch))));
}

}  // namespace

// As Session::Impl::begin_pipeline().
void Simulation::begin_passes(Process& p) {
  Process::Together& t = *p.together;
  StepGradients& gradients = p.member->gradients();
  const ModelReplica& replica = p.member->replica();
  std::vector<int> vranks;
  for (const int vrank : gradients.todo())
    if (gradients.counts(vrank)) vranks.push_back(vrank);
  for (size_t i = 0; i < vranks.size(); ++i)
    if (i % replica.stages().size() == static_cast<size_t>(t.place.stage)) t.attached.push_back(vranks[i]);
  if (!t.last) t.passes = replica.passes(vranks);
  if (!t.last && p.member->stage_exchange().in_group()) begin_transfers(p, vranks);
  for (const int vrank : vranks)
    if (t.last) gradients.add(t.step, vrank, {}, 0);
}

// Begins the next pass, or the next attachment. Returns false if there is one.
bool Simulation::next_pass(Process& p) {
  Process::Together& t = *p.together;
  if (t.done == t.passes.size() + t.attached.size()) return true;
  const bool several = p.member->replica().stage().size() > 1;
  if (t.done >= t.passes.size()) {
    const int vrank = t.attached[t.done++ - t.passes.size()];
    const Process::Together::Rank& rank = begin_pass(p, vrank);
    t.attaches = true;
    t.early = t.all = rank.exchanges + (several && t.step % 3 == 0 ? 1 : 0);
    begin_segments_together(p);
  } else {
    t.pass = t.passes[t.done++];
    const auto later_passes = std::span(t.passes).subspan(t.done);
    const Process::Together::Rank& rank = begin_pass(p, t.pass.vrank);
    t.ends = std::ranges::none_of(later_passes, [&](const PipelinePass& q) { return q.vrank == t.pass.vrank; });
    const uint64_t draw =
        mix(static_cast<uint64_t>(((t.step * 100 + t.vrank) * 10 + t.pass.run) * 2 + t.pass.backward));
    t.early = rank.exchanges + (several && rank.samples ? static_cast<int64_t>(draw % 3) : 0);
    t.all = t.early + (several && rank.samples ? static_cast<int64_t>(draw / 4 % 2) : 0);
    begin_segments_together(p);
    if (rank.samples || t.transfers) {
      take_input(p);
      if (t.awaits != Process::Together::Awaits::nothing) return false;
    }
  }
  later(p, p.gradient_seconds * uniform(0.02, 0.2), [this](Process& q) { go_on(q); });
  return false;
}

// Takes the input of the pass, or awaits it. The first pass of a rank gradient has none, and the first backward pass
// begins with what the last forward pass has given.
void Simulation::take_input(Process& p) {
  Process::Together& t = *p.together;
  const int runs = static_cast<int>(p.member->replica().runs().size());
  if (t.pass.run == 0 && !t.pass.backward) {
    t.value = boundary(p, t.vrank, 0, false);
  } else if (t.pass.run + 1 == runs && t.pass.backward) {
    t.value = t.ranks.at(t.vrank).forwarded;
  } else if (!is_input_taken(p)) {
    t.awaits = Process::Together::Awaits::input;
    if (kills_beside_open_ && pick(2) == 0) kill_ahead(p);
  }
}

bool Simulation::is_input_taken(Process& p) {
  Process::Together& t = *p.together;
  const auto fits = [&](const Shape& shape, DType dtype) {
    if (shape != Shape{sizeof(t.value)} || dtype != DType::u8)
      violate("worker {} gets an input of another shape or type", p.peer);
    return true;
  };
  const std::optional<messages::BoundaryValue> input =
      t.transfers ? taken_input(p) : p.member->stage_exchange().take(t.pass, fits);
  if (input && t.ranks.at(t.vrank).samples) check_input(p, *input);
  return input.has_value();
}

void Simulation::check_input(Process& p, const messages::BoundaryValue& input) {
  Process::Together& t = *p.together;
  ++result_.passed;
  std::memcpy(&t.value, input.elements.at(0).data, sizeof(t.value));
  const std::vector<PipelineRun>& runs = p.member->replica().runs();
  const Interval segments = runs.at(static_cast<size_t>(t.pass.run)).segments;
  const int at = t.pass.backward ? segments.end : segments.begin;
  const bool right = input.vrank == t.vrank && input.run == t.pass.run + (t.pass.backward ? 1 : -1) &&
                     input.backward == t.pass.backward && input.random == at &&
                     t.value == boundary(p, t.vrank, at, t.pass.backward);
  if (!right && !is_damaged(p))
    violate("worker {} gets another input of run {} of virtual rank {}", p.peer, t.pass.run, t.vrank);
  if (!right) mislead(p);
}

// The value in front of a segment, or the gradient of that value.
uint64_t Simulation::boundary(const Process& p, int vrank, int segment, bool backward) const {
  const Process::Together& t = *p.together;
  const auto segments = static_cast<int>(segments_.homes.size());
  uint64_t value = mix(p.state ^ static_cast<uint64_t>(t.step * 100 + vrank));
  for (int s = 0; s < (backward ? segments : segment); ++s)
    value = through(value, p.state, t.scaling_state, t.step, vrank, s, false);
  for (int s = segments - 1; backward && s >= segment; --s)
    value = through(value, p.state, t.scaling_state, t.step, vrank, s, true);
  return value;
}

// Sends what the pass gives, in which a bit may flip.
void Simulation::end_pass(Process& p) {
  Process::Together& t = *p.together;
  Process::Together::Rank& rank = t.ranks.at(t.vrank);
  const ModelReplica& replica = p.member->replica();
  StageExchange& exchange = p.member->stage_exchange();
  const bool staged = !t.passes.empty() || t.attaches;
  if (staged && !exchange.going()) return give_up(p);
  if (t.attaches) {
    p.member->gradients().attach(t.vrank, attached(p.state, t.step, t.vrank));
    p.member->replica_exchange().end();
    return;
  }
  if (staged && !rank.samples && t.transfers) give(p, std::nullopt, 0);
  if (staged && rank.samples) {
    const auto run = static_cast<size_t>(t.pass.run);
    const Interval segments = replica.runs()[run].segments;
    uint64_t value = t.value;
    for (int i = 0; i < segments.size(); ++i)
      value = through(value, p.state, t.scaling_state, t.step, t.vrank,
                      t.pass.backward ? segments.end - 1 - i : segments.begin + i, t.pass.backward);
    if (!t.pass.backward) rank.forwarded = value;
    if (t.pass.backward ? run > 0 : run + 1 < replica.runs().size()) {
      if (p.flip == Flip::gradient && computes_audited(p, t.step, t.vrank) && pick(2) == 0) {
        damaged(p, "an input of a pass", t.step);
        value ^= 1;
      }
      const int random = t.pass.backward ? segments.begin : segments.end;
      if (t.transfers) give(p, value, random);
      else
        exchange.send(messages::BoundaryValue{
            .vrank = t.vrank,
            .run = t.pass.run,
            .backward = t.pass.backward,
            .shape = {sizeof(value)},
            .dtype = DType::u8,
            .random = random,
            .elements = {blob_of(std::string(reinterpret_cast<const char*>(&value), sizeof(value)))}});
    }
  }
  if (t.transfers && !make_transfers(p)) {
    t.awaits = Process::Together::Awaits::output;
    return;
  }
  finish_pass(p);
}

void Simulation::finish_pass(Process& p) {
  const Process::Together& t = *p.together;
  p.member->replica_exchange().end();
  if (t.ends) finish_rank(p);
}

// Kills a member of the stage that this one waits for.
void Simulation::kill_ahead(Process& p) {
  const ModelReplica& replica = p.member->replica();
  const PipelinePass& pass = p.together->pass;
  const int stage = replica.runs()[static_cast<size_t>(pass.backward ? pass.run + 1 : pass.run - 1)].stage;
  const std::vector<int>& members = replica.stages()[static_cast<size_t>(stage)];
  const int member = members[static_cast<size_t>(pick(static_cast<int>(members.size())))];
  Process& other = *workers_.at(p.member->position().generation->members.at(static_cast<size_t>(member)).peer);
  if (&other == &p || !other.alive) return;
  kills_beside_open_ = false;
  ++result_.killed_ahead;
  die(other, "kill");
}

}  // namespace elinvar
