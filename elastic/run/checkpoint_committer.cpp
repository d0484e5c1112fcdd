#include "elastic/run/checkpoint_committer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "elastic/step/step.h"
#include "tensor/base/check.h"

namespace elinvar {

std::vector<CheckpointCommitter::Settled> CheckpointCommitter::saved(int64_t step, const messages::Saved& part) {
  invariant(part.part >= 0 && part.part < part.parts, "a part of the checkpoint");
  if (!part.error.empty()) {
    events_.write("checkpoint_failed", {{"step", step}, {"part", part.part}, {"reason", part.error}});
    saving_.erase({step, part.parts});
    store_.discard_parts(step, part.parts);
    return {{step, part.error}};
  }
  Saving& saving = saving_[{step, part.parts}];
  saving.expected = part.parts;
  saving.parts[part.part] = {
      .file = part.file, .bytes = part.bytes, .digest = part.digest, .sliced = !part.slices.empty()};
  for (const auto& [name, digest] : part.digests) saving.digests[name] = digest;
  saving.slices[part.part] = part.slices;
  if (part.state) saving.attested[part.part] = *part.state;
  saving.copy_seconds = std::max(saving.copy_seconds, part.copy_seconds);
  saving.wait_seconds = std::max(saving.wait_seconds, part.wait_seconds);
  return commit();
}

// Composes the digests of the whole state from those of the parts. Throws Failure if a tensor is not complete.
StateSum CheckpointCommitter::sum_of(const Saving& saving) {
  std::vector<SliceDigests> slices;
  for (const auto& [part, of_part] : saving.slices) slices.insert(slices.end(), of_part.begin(), of_part.end());
  return state_sum(saving.digests, slices);
}

// Returns why the saved parts, of which none is missing, do not make a checkpoint; "" if they do; null if that is not
// known yet.
std::optional<std::string> CheckpointCommitter::fault_of(int64_t step, const Saving& saving) {
  constexpr const char* kOther = "what was saved is not the state that the workers agree on";
  const std::optional<Digest> agreed = facts_.states().at(step);
  if (!agreed) {
    if (static_cast<int>(saving.attested.size()) != saving.expected) return std::nullopt;
    const auto& [first, state] = *saving.attested.begin();
    for (const auto& [part, attested] : saving.attested)
      if (attested != state)
        return fmt::format("the workers of parts {} and {} have different states: a machine or its memory is at fault",
                           first, part);
    // Each slice is held by one worker, so the workers can agree only on the tensors that all of them hold whole.
    if (state_sum(saving.digests).digest != state) return kOther;
  }
  StateSum sum;
  try {
    sum = sum_of(saving);
  } catch (const Failure& incomplete) {
    return incomplete.what();
  }
  if (agreed && sum.digest != *agreed) return kOther;
  facts_.know_state(step, sum.digest, sum.parts);
  return step > facts_.recorded() ? std::nullopt : std::optional<std::string>("");
}

std::vector<CheckpointCommitter::Settled> CheckpointCommitter::commit() {
  std::vector<Settled> settled;
  for (auto it = saving_.begin(); it != saving_.end();) {
    const int64_t step = it->first.first;
    const Saving& saving = it->second;
    const bool whole = static_cast<int>(saving.parts.size()) == saving.expected;
    std::optional<std::string> fault = whole ? fault_of(step, saving) : std::nullopt;
    if (!fault) {
      ++it;
      continue;
    }
    if (fault->empty()) fault = commit(step, saving);
    settled.push_back({step, *fault});
    if (!fault->empty()) {
      store_.discard_parts(step, it->first.second);
      events_.write("checkpoint_failed", {{"step", step}, {"reason", *fault}});
    }
    it = saving_.erase(it);
    if (fault->empty()) {
      // Each worker writes its parts in order, so missing parts of earlier checkpoints will not arrive.
      std::erase_if(saving_, [&](const auto& earlier) { return earlier.first.first < step; });
      if (const std::string why = store_.prune(step); !why.empty())
        events_.write("checkpoints_not_pruned", {{"step", step}, {"reason", why}});
      it = saving_.lower_bound({step, 0});
    }
  }
  return settled;
}

// Commits parts that were all written. Returns "" or why they cannot become a checkpoint, for example because they were
// removed or the disk is full.
std::string CheckpointCommitter::commit(int64_t step, const Saving& saving) {
  std::vector<CheckpointPart> files;
  for (const auto& [number, part] : saving.parts) files.push_back(part);
  const Digest digest = sum_of(saving).digest;
  facts_.sync();
  try {
    store_.commit(step, files, digest);
  } catch (const Failure& failure) {
    (void)term_.newest();  // for the same check as below
    return failure.what();
  }
  (void)term_.newest();  // throws if the directory was displaced: the checkpoint must not be announced then
  facts_.states().add(step, digest);
  events_.write("checkpoint", {{"step", step},
                               {"state", digest.hex()},
                               {"copy_seconds", saving.copy_seconds},
                               {"wait_seconds", saving.wait_seconds}});
  return "";
}

int64_t CheckpointCommitter::newest(int64_t most) const {
  std::vector<int64_t> steps = store_.steps();
  for (; !steps.empty(); steps.pop_back()) {
    const int64_t step = steps.back();
    const std::optional<Digest> digest = step <= most ? store_.manifest_digest(step) : std::nullopt;
    if (digest && *digest == facts_.states().at(step).value_or(*digest)) return step;
  }
  return 0;
}

}  // namespace elinvar
