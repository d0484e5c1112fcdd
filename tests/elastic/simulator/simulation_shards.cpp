// The simulator: the optimizer's state, sharded over workers.
#include <bit>
#include <cstring>
#include <utility>

#include "comm/buckets.h"
#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

namespace {

template <class T>
Blob blob_of_number(T x) {
  return blob_of(std::string(reinterpret_cast<const char*>(&x), sizeof(x)));
}

template <class T>
T number_of(const Blob& blob) {
  T x{};
  if (blob.bytes != sizeof(x)) throw std::runtime_error("a number of another size came");
  std::memcpy(&x, blob.data, sizeof(x));
  return x;
}

}  // namespace

// The elements of all tensors are numbered in order.
size_t Simulation::element_of(const Slice& slice) const {
  int64_t element = slice.begin;
  for (int t = 0; t < slice.tensor; ++t) element += shapes_[static_cast<size_t>(t)].numel();
  return static_cast<size_t>(element);
}

Arrangement Simulation::arrangement() const {
  return {.zero = s_.zero, .copies = s_.copies, .tp = s_.tp, .pp = s_.pp};
}

// Checks that a worker has the state of these buckets that it is about to save or send.
void Simulation::check_slots(const Process& p, const std::vector<int>& which, int64_t step) {
  const std::vector<TinyState>& states = reference(p).states;
  const TinyState& expected = states[std::min(static_cast<size_t>(step), states.size() - 1)];
  for (const int b : which) {
    const size_t i = element_of(buckets_.slices(b)[0]);
    if (p.tiny.slots[i] != expected.slots[i])
      violate("worker {} is to have the optimizer's state of bucket {} after step {}", p.peer, b, step);
  }
}

// Sending takes a while.
void Simulation::move_shards(Process& p, const StatePart& part) {
  check_slots(p, part.buckets, part.step);
  for (const int b : part.buckets) {
    ++result_.moved;
    const uint64_t slot = p.tiny.slots[element_of(buckets_.slices(b)[0])];
    deliver_part(p.peer, part.to, uniform(0.001, 0.1),
                 {.generation = part.generation,
                  .step = part.step,
                  .payload = messages::BucketState{.bucket = b, .tensors = {blob_of_number(slot)}}});
  }
}

// Keeps what it is to keep from now on, and forgets the rest.
void Simulation::change_shards(Process& p) {
  const std::optional<OptimizerShards::Change> change = p.member->shards().take_change();
  if (!change) return;
  std::array<uint64_t, TinyState::kElements> slots{};
  for (const int b : change->kept) {
    const size_t i = element_of(buckets_.slices(b)[0]);
    const auto gained = change->gained.find(b);
    slots[i] = gained == change->gained.end() ? p.tiny.slots[i] : number_of<uint64_t>(gained->second.tensors.at(0));
  }
  p.tiny.slots = slots;
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
  for (const GradientShards::Bucket& bucket : r.shards->kept)
    for (const Tensor& gradient : bucket.gradients)
      p.tiny.update_element(element_of(bucket.slices.at(0)), gradient.span<float>()[0], lr_factor);
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
  return {blob_of_number(p.tiny.parameters[element_of(buckets_.slices(bucket)[0])])};
}

// Takes the values that have come, and ends the update once it has all.
void Simulation::take_values(Process& p) {
  ValueExchange& values = p.member->values();
  if (!values.pending()) {  // the worker is to restore a checkpoint
    p.updating.reset();
    return advance(p);
  }
  if (!p.updating->made) update_shards(p);
  if (!p.alive || !p.updating->made) return;
  for (const messages::BucketValues& arrived : values.take_arrived())
    p.tiny.parameters[element_of(buckets_.slices(arrived.bucket)[0])] = number_of<uint32_t>(arrived.slices.at(0));
  if (!values.complete()) return;
  StateTransfers& transfers = p.member->transfers();
  for (int b = 0; transfers.wants_values() && b < buckets_.count(); ++b) transfers.give_values(b, values_of(p, b));
  p.state = p.tiny.digest();
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
