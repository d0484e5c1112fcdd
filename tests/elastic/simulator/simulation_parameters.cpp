// The simulator: parameters of which each worker keeps some (ZeRO-3). As in nn/residence.h, a pass has those of one
// segment at a time, and asks for those of the next one meanwhile. Parameters follow from all gradients of their
// element so far, so a value of another step or bucket is noticed.
#include <algorithm>
#include <numeric>

#include "tests/elastic/simulator/blob_of_number.h"
#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

namespace {

constexpr int kRepeats = 30;  // one pass in this many is repeated

std::vector<int> from_first_to_last(const Interval& segments) {
  std::vector<int> order(static_cast<size_t>(segments.size()));
  std::iota(order.begin(), order.end(), segments.begin);
  return order;
}

std::vector<int> from_last_to_first(const Interval& segments) {
  std::vector<int> order = from_first_to_last(segments);
  std::ranges::reverse(order);
  return order;
}

}  // namespace

bool Simulation::has_parameter(const Process& p, int bucket) const {
  return p.form() != HeldForm::sliced || keeps(p, bucket);
}

// The digest of a state of which the worker has a part, if all else is that of the undisturbed run.
uint64_t Simulation::digest_of_state(const Process& p, int64_t step) const {
  TinyState state = p.tiny;
  for (int b = 0; b < buckets_.count(); ++b)
    if (!has_parameter(p, b)) state.parameters[element_of(b)] = right_parameter(p, b, step);
  return state.digest();
}

uint32_t Simulation::right_parameter(const Process& p, int bucket, int64_t step) const {
  const std::vector<TinyState>& states = reference(p).states;
  return states[std::min(static_cast<size_t>(step), states.size() - 1)].parameters[element_of(bucket)];
}

// The buckets of the parameters that a segment reads, except for those of virtual shards that others compute.
std::vector<int> Simulation::read_by(const Process& p, int segment) const {
  std::vector<int> buckets;
  for (int tensor = 0; tensor < static_cast<int>(shapes_.size()); ++tensor) {
    const NetworkPart& part = parts_->gradients[static_cast<size_t>(tensor)];
    const bool tied = s_.tied && tensor == 0 && segment == 0;  // the last segment has its gradient
    if (part.segment != segment && !tied) continue;
    if (p.residence->shards && part.shard >= 0 && !contains({&*p.residence->shards, 1}, part.shard)) continue;
    const auto [first, last] = buckets_.of(tensor);
    for (int b = first; b < last; ++b) buckets.push_back(b);
  }
  return buckets;
}

// --- The segments of a pass.

// A rank gradient that the worker computes alone, or the scores after the last update.
void Simulation::begin_segments(Process& p, bool scores) {
  p.residence.emplace();
  p.residence->order = from_first_to_last({0, kSegments});
  p.residence->forward = p.residence->order.size();
  if (scores) return;
  for (const int segment : from_last_to_first({0, kSegments})) p.residence->order.push_back(segment);
}

// A pass that is computed with others, or the whole rank gradient. Passes of a stage have one residence.
void Simulation::begin_segments_together(Process& p) {
  if (p.form() != HeldForm::sliced) return;
  const Process::Together& t = *p.together;
  const bool staged = !t.passes.empty() || p.member->replica().staged();
  if (!t.attaches && !t.last && !t.ranks.at(t.vrank).samples) {
    if (p.residence) p.residence->begin({});
    return;
  }
  if (!staged || !p.residence) begin_segments(p, /*scores=*/t.last);
  p.residence->shards = t.place.shards;
  if (!staged) return;
  if (t.attaches) return p.residence->begin(from_first_to_last({0, kSegments}));
  const Interval segments = p.member->replica().runs()[static_cast<size_t>(t.pass.run)].segments;
  if (t.pass.backward) return p.residence->begin(from_last_to_first(segments));
  p.residence->begin(from_first_to_last(segments));
  p.residence->stays = true;
  p.residence->forward = p.residence->order.size();
}

void SegmentResidence::begin(std::vector<int> segments) {
  order = std::move(segments);
  entered = forward = 0;
  stays = false;
}

// Returns how many segments have been entered when the gradient of a tensor is complete.
size_t SegmentResidence::entered_for(int segment) const {
  const auto last = std::find(order.rbegin(), order.rend(), segment);
  return static_cast<size_t>(order.rend() - last);
}

// Returns how many segments of the pass have been entered when the loop goes on with its next exchange or tensor.
size_t Simulation::segments_before(const Process& p) const {
  if (!p.residence) return 0;
  const Process::Residence& r = *p.residence;
  const Process::Together& t = *p.together;
  const Process::Together::Rank& rank = t.ranks.at(t.vrank);
  if (rank.exchanges < t.early) return std::min(r.entered + 1, std::max(r.forward, r.entered));
  if (!t.ends || t.attaches) return r.order.size();
  if (!rank.computed) return r.forward;
  for (size_t tensor = rank.left; rank.opens && tensor > 0; --tensor)
    if (rank.gradient.gradients[tensor - 1].defined()) return r.entered_for(parts_->gradients[tensor - 1].segment);
  return r.order.size();
}

// Goes on once this many segments of the pass have been entered.
void Simulation::enter_segments(Process& p, size_t entered, std::function<void(Process&)> then) {
  if (!p.residence || p.residence->entered >= entered) return then(p);
  p.residence->due = entered;
  p.residence->then = [&p, then = std::move(then)] { then(p); };
  enter(p);
}

// Enters the next segment of the pass, or goes on with it when a message has come.
void Simulation::enter(Process& p) {
  Process::Residence& r = *p.residence;
  const int segment = r.order[r.entered];
  if (!r.awaits) {
    if (r.in_use) drop(p, *std::exchange(r.in_use, std::nullopt));
    if (r.next && *r.next != segment) drop(p, *std::exchange(r.next, std::nullopt));
    if (!std::exchange(r.next, std::nullopt) && !hold(p, segment)) return step_is_over(p);
    r.in_use = segment;
  }
  for (const int bucket : read_by(p, segment))
    if (!take_parameter(p, bucket)) return;
  r.awaits = false;
  ++r.entered;
  std::optional<int> next;
  if (r.entered < r.order.size()) next = r.order[r.entered];
  else if (r.stays) next = segment;
  if (next && !hold(p, *next)) return step_is_over(p);
  r.next = next;
  flush(p);
  if (!p.alive) return;
  later(p, p.gradient_seconds * uniform(0.02, 0.12), [this](Process& q) {
    Process::Residence& now = *q.residence;
    if (now.entered == 1 && now.forward > 1 && !q.together && pick(kRepeats) == 0) repeat(q);
    if (now.entered < now.due) return enter(q);
    std::exchange(now.then, nullptr)();
  });
}

// Begins the pass anew, as if its device had been full.
void Simulation::repeat(Process& p) {
  Process::Residence& r = *p.residence;
  if (r.in_use) drop(p, *std::exchange(r.in_use, std::nullopt));
  if (r.next) drop(p, *std::exchange(r.next, std::nullopt));
  r.entered = 0;
  ++result_.repeated;
}

// Returns whether a parameter is there. If it is not, the worker waits for it, or the step is over for this worker.
bool Simulation::take_parameter(Process& p, int bucket) {
  Process::Residence& r = *p.residence;
  ParameterFetch& fetch = p.member->parameter_fetch();
  bool& there = r.holdings.at(bucket).there;
  if (there) return true;
  uint32_t value = p.tiny.parameters[element_of(bucket)];
  if (!has_parameter(p, bucket)) {
    const std::optional<Blob> come = fetch.going() ? take_from_others(p, bucket) : std::nullopt;
    if (!come) {
      if (!fetch.going()) step_is_over(p);
      else if (!std::exchange(r.awaits, true) && kills_beside_open_ && pick(2) == 0) kill_provider(p, bucket);
      return false;
    }
    ++result_.fetched;
    value = number_of<uint32_t>(*come);
  }
  const int64_t step = p.member->position().step;
  if (value != right_parameter(p, bucket, step))
    violate("worker {} computes step {} with another parameter of bucket {}", p.peer, step, bucket);
  return there = true;
}

// Returns the parameter in a bucket once it has come. A row of the table is asked for here.
std::optional<Blob> Simulation::take_from_others(Process& p, int bucket) {
  Process::Residence& r = *p.residence;
  ParameterFetch& fetch = p.member->parameter_fetch();
  if (!p.member->layout().of_table(bucket)) {
    const std::optional<messages::ParameterValues> values = fetch.take(bucket);
    return values ? std::optional(values->slices.at(0)) : std::nullopt;
  }
  if (r.row_of != bucket) {
    fetch.ask_rows(/*table=*/0, {{bucket, {buckets_.slices(bucket)[0].begin}}});
    r.row_of = bucket;
    act(p.peer, p.member->outbox().take());
  }
  const std::optional<std::map<int, Blob>> values = fetch.take_rows();
  if (!values) return std::nullopt;
  r.row_of.reset();
  ++result_.fetched_rows;
  return values->at(bucket);
}

// Asks for the parameters of a segment that are not there yet. Returns false if the step is over for this worker.
bool Simulation::hold(Process& p, int segment) {
  Process::Residence& r = *p.residence;
  const std::vector<int> read = read_by(p, segment);
  std::vector<int> absent;
  for (const int b : read)
    if (r.holdings[b].users == 0 && !has_parameter(p, b) && !p.member->layout().of_table(b)) absent.push_back(b);
  if (!absent.empty()) {
    ParameterFetch& fetch = p.member->parameter_fetch();
    if (!fetch.going()) return false;
    const MemberPosition& at = p.member->position();
    for (const int b : absent)
      if (p.member->shards().provider(b, at.step) == at.index)
        violate("worker {} is to provide bucket {}, which it does not keep", p.peer, b);
    fetch.ask(absent);
  }
  for (const int b : read) ++r.holdings[b].users;
  return true;
}

void Simulation::drop(Process& p, int segment) {
  std::map<int, Process::Residence::Holding>& holdings = p.residence->holdings;
  for (const int b : read_by(p, segment)) {
    Process::Residence::Holding& holding = holdings.at(b);
    if (--holding.users > 0) continue;
    const bool asked = !holding.there && !has_parameter(p, b) && !p.member->layout().of_table(b);
    if (asked) p.member->parameter_fetch().forget(b);
    holdings.erase(b);
  }
}

// As Session::StepOver in the middle of a rank gradient.
void Simulation::step_is_over(Process& p) {
  ++result_.fetches_over;
  if (p.open && p.member->position().fenced()) ++result_.interrupted;
  if (p.residence->in_use) drop(p, *p.residence->in_use);
  if (p.residence->next) drop(p, *p.residence->next);
  p.residence.reset();
  p.open = false;
  if (p.together) give_up(p);
}

// Kills the member whose answer this one waits for.
void Simulation::kill_provider(Process& p, int bucket) {
  const MemberPosition& at = p.member->position();
  const int member = p.member->shards().provider(bucket, at.step);
  Process& other = *workers_.at(at.generation->members.at(static_cast<size_t>(member)).peer);
  if (!other.alive) return;
  kills_beside_open_ = false;
  ++result_.killed_providers;
  die(other, "kill");
}

// --- The provider's side.

void Simulation::give_parameters(Process& p) {
  ParameterFetch& fetch = p.member->parameter_fetch();
  for (const ParameterFetch::Wanted& wanted : fetch.take_wanted()) {
    check_slots(p, wanted.buckets, p.member->position().step);
    for (const int b : wanted.buckets) fetch.give(wanted, b, values_of(p, b));
  }
  for (const ParameterFetch::WantedRows& wanted : fetch.take_wanted_rows()) {
    const auto row = static_cast<int64_t>(number_of<uint64_t>(wanted.rows.rows));
    for (int b = buckets_.of(0).first; b < buckets_.of(0).second; ++b)
      if (buckets_.slices(b)[0].begin == row) {
        check_slots(p, {b}, p.member->position().step);
        fetch.give(wanted, values_of(p, b)[0]);
      }
  }
  act(p.peer, p.member->outbox().take());
}

}  // namespace elinvar
