// The simulator: the optimizer's state, sharded over workers.
#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "comm/buckets.h"
#include "tests/elastic/simulator/blob_of_number.h"
#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

// The elements of all tensors are numbered in order.
size_t Simulation::element_of(const Slice& slice) const {
  int64_t element = slice.begin;
  for (int t = 0; t < slice.tensor; ++t) element += shapes_[static_cast<size_t>(t)].numel();
  return static_cast<size_t>(element);
}

std::vector<int> Simulation::all_buckets() const {
  std::vector<int> all(static_cast<size_t>(buckets_.count()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool Simulation::keeps(const Process& p, int bucket) const {
  return p.form() == HeldForm::whole || p.holds_all || p.kept.contains(bucket);
}

// Checks that a member holds the state before a step as its generation's record says.
void Simulation::check_form(const Process& p) const {
  const MemberPosition& at = p.member->position();
  if (!at.begun() || at.step != at.completed) return;
  const int zero = at.generation->held_with(std::min(at.step, at.steps));
  if (p.form() != form_of(zero))
    violate("worker {} holds the state after step {} as with zero={}, and others of generation {} as with zero={}",
            p.peer, at.step, p.zero, at.number(), zero);
}

// Checks that a worker has the state of these buckets, which it is about to save, send, digest or update.
void Simulation::check_slots(const Process& p, const std::vector<int>& which, int64_t step) const {
  const std::vector<TinyState>& states = reference(p).states;
  const TinyState& expected = states[std::min(static_cast<size_t>(step), states.size() - 1)];
  for (const int b : which) {
    const size_t i = element_of(b);
    if (!keeps(p, b) || p.tiny.slots[i] != expected.slots[i])
      violate("worker {} is to have the optimizer's state of bucket {} after step {}", p.peer, b, step);
    if (p.tiny.parameters[i] != expected.parameters[i])
      violate("worker {} is to have the parameters of bucket {} after step {}", p.peer, b, step);
  }
}

// Sending takes a while.
void Simulation::move_shards(Process& p, const StatePart& part) {
  check_slots(p, part.buckets, part.step);
  for (const int b : part.buckets) {
    ++result_.moved;
    messages::BucketState told{.bucket = b, .tensors = {blob_of_number(p.tiny.slots[element_of(b)])}};
    if (p.form() == HeldForm::sliced) told.tensors.push_back(blob_of_number(p.tiny.parameters[element_of(b)]));
    deliver_part(p.peer, part.to, uniform(0.001, 0.1),
                 {.generation = part.generation, .step = part.step, .payload = std::move(told)});
  }
}

// Keeps what it is to keep from now on, in the form in which members hold it from now on, and forgets the rest. Whole
// parameters that were sliced come with the values of this step.
void Simulation::change_shards(Process& p) {
  const std::optional<OptimizerShards::Change> change = p.member->shards().take_change();
  if (!change) return;
  const HeldForm before = form_of(change->zero_before), now = form_of(change->zero);
  if (p.form() != before)
    violate("worker {} is to change from zero={}, but holds the state as with zero={}", p.peer, change->zero_before,
            p.zero);
  std::array<uint64_t, TinyState::kElements> slots{};
  std::array<uint32_t, TinyState::kElements> parameters{};
  for (const int b : change->kept) {
    const size_t i = element_of(b);
    const auto gained = change->gained.find(b);
    const bool gains = gained != change->gained.end();
    if (!gains && !keeps(p, b)) violate("worker {} is to keep bucket {}, which it did not get", p.peer, b);
    slots[i] = gains ? number_of<uint64_t>(gained->second.tensors.at(0)) : p.tiny.slots[i];
    const bool comes = gains && before == HeldForm::sliced;
    parameters[i] = comes ? number_of<uint32_t>(gained->second.tensors.at(1)) : p.tiny.parameters[i];
  }
  p.tiny.slots = slots;
  if (before == HeldForm::sliced || now == HeldForm::sliced) p.tiny.parameters = parameters;
  result_.reformed += now != before;
  p.zero = change->zero;
  p.kept = {change->kept.begin(), change->kept.end()};
  p.holds_all = false;
}

// The sum over all gradients takes part in the update of each.
void Simulation::update_shards(Process& p) {
  const Reduced& r = p.updating->reduced;
  const double lr_factor = p.updating->lr_factor;
  change_shards(p);
  ValueExchange& values = p.member->values();
  check_slots(p, values.kept(), p.member->position().step);
  if (s_.sums && !values.kept().empty()) {
    std::map<int, Blob> sums;
    for (const GradientShards::Bucket& bucket : r.shards->kept)
      sums[bucket.number] =
          blob_of_number(bucket.gradients.empty() ? 0 : std::bit_cast<uint32_t>(bucket.gradients[0].span<float>()[0]));
    if (!std::exchange(p.updating->gave_sums, true)) values.give_sums(sums);
    flush(p);
    if (!p.alive || !values.sums()) return;
    uint32_t all = 0;
    for (const auto& [bucket, sum] : *values.sums()) all ^= number_of<uint32_t>(sum);
    if (all != sum_of_gradients(p)) violate("worker {} has other sums", p.peer);
  }
  // The rows of the table, and the places of its gradient, are cut alike here.
  const auto updates = [&](int bucket) {
    return !p.member->layout().of_table(bucket) || std::ranges::count(values.kept(), bucket) > 0;
  };
  for (const GradientShards::Bucket& bucket : r.shards->kept)
    for (size_t i = 0; updates(bucket.number) && i < bucket.gradients.size(); ++i)
      p.tiny.update_element(element_of(bucket.slices.at(i)), bucket.gradients[i].span<float>()[0], lr_factor);
  p.tiny.update_rest(r, lr_factor);
  for (const int b : values.to_send()) values.send(b, values_of(p, b));
  values.updated();
  p.updating->made = true;
}

// The sum that the undisturbed run has, by its facts.
uint32_t Simulation::sum_of_gradients(const Process& p) const {
  return reference(p).sums.at(static_cast<size_t>(p.member->position().step));
}

std::vector<Blob> Simulation::values_of(const Process& p, int bucket) const {
  if (!has_parameter(p, bucket)) violate("worker {} is to give parameters of bucket {}", p.peer, bucket);
  return {blob_of_number(p.tiny.parameters[element_of(bucket)])};
}

// Takes the values that have come, and ends the update once it has all.
void Simulation::take_values(Process& p) {
  ValueExchange& values = p.member->values();
  if (!values.pending()) {  // the worker is to restore a checkpoint
    p.updating.reset();
    return advance(p);
  }
  if (!p.updating->made) update_shards(p);
  if (!p.alive || !p.updating->made || !transfer_parameters(p)) return;
  for (const messages::BucketValues& arrived : values.take_arrived())
    p.tiny.parameters[element_of(arrived.bucket)] = number_of<uint32_t>(arrived.slices.at(0));
  if (!values.complete()) return;
  StateTransfers& transfers = p.member->transfers();
  for (int b = 0; transfers.wants_values() && b < buckets_.count(); ++b) transfers.give_values(b, values_of(p, b));
  p.state = digest_of_state(p, p.member->position().step + 1);
  StepFacts facts = std::move(p.updating->facts);
  p.updating.reset();
  p.member->advance(std::move(facts));
  flush(p);
  if (p.alive) advance(p);
}

void Simulation::give_wanted(Process& p) {
  ValueExchange& values = p.member->values();
  for (const ValueExchange::Wanted& wanted : values.take_wanted()) {
    ++result_.asked;
    for (const int b : wanted.buckets) values.give(wanted, b, values_of(p, b));
  }
  act(p.peer, p.member->outbox().take());
}

}  // namespace elinvar
