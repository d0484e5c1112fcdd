#include "elastic/protocol/stage_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/protocol/value_pieces.h"
#include "tensor/base/check.h"

namespace elinvar {

using messages::BoundaryValue;
using messages::GradientDigests;

void StageExchange::begin(bool in_group) {
  begun_ = {position_.number(), position_.completed};
  in_group_ = in_group;
  awaited_.reset();
  undigested_.reset();
}

bool StageExchange::going() const {
  return begun_ && position_.active() && !position_.fenced() && position_.number() == begun_->generation &&
         position_.completed == begun_->step;
}

// The member of a run's stage that sends to the member at this position of another stage.
int StageExchange::sender_to(const PipelineRun& from, int position) const {
  const std::vector<int>& stage = replica_.stages()[static_cast<size_t>(from.stage)];
  return stage[static_cast<size_t>(position) % stage.size()];
}

std::vector<StageExchange::Transfer> StageExchange::transfers(const std::vector<int>& vranks) const {
  const std::vector<PipelineRun>& runs = replica_.runs();
  const auto count = static_cast<int>(replica_.stages().size());
  std::vector<Transfer> transfers;
  for (const PipelinePass& pass : passes_by_end(runs, count, vranks)) {
    const int next = pass.backward ? pass.run - 1 : pass.run + 1;
    if (next < 0 || next == static_cast<int>(runs.size())) continue;
    const std::vector<int>& stage = replica_.stages()[static_cast<size_t>(runs[static_cast<size_t>(next)].stage)];
    Transfer transfer{.pass = pass};
    for (size_t position = 0; position < stage.size(); ++position) {
      const int sender = sender_to(runs[static_cast<size_t>(pass.run)], static_cast<int>(position));
      if (sender == position_.index) transfer.to.push_back(stage[position]);
      if (stage[position] == position_.index) transfer.from = sender;
    }
    transfers.push_back(std::move(transfer));
  }
  return transfers;
}

void StageExchange::send(BoundaryValue value) {
  invariant(going(), "values are sent while the step's rank gradients are computed");
  value.in_group = in_group_;
  const std::vector<PipelineRun>& runs = replica_.runs();
  const PipelineRun& from = runs[static_cast<size_t>(value.run)];
  const PipelineRun& to = runs[static_cast<size_t>(value.backward ? value.run - 1 : value.run + 1)];
  const std::vector<int>& stage = replica_.stages()[static_cast<size_t>(to.stage)];
  const Payload payload(std::move(value));
  for (size_t position = 0; position < stage.size(); ++position)
    if (sender_to(from, static_cast<int>(position)) == position_.index)
      outbox_.send(position_.generation->members[static_cast<size_t>(stage[position])].peer, payload);
}

int StageExchange::index_of_sender(const PipelinePass& pass) const {
  const std::vector<int>& stage = replica_.stage();
  const auto position = std::ranges::find(stage, position_.index) - stage.begin();
  const int before = pass.backward ? pass.run + 1 : pass.run - 1;
  return sender_to(replica_.runs()[static_cast<size_t>(before)], static_cast<int>(position));
}

std::optional<BoundaryValue> StageExchange::take(const PipelinePass& pass, const Fits& fits) {
  invariant(going(), "values are taken while the step's rank gradients are computed");
  const PeerId sender = position_.generation->members[static_cast<size_t>(index_of_sender(pass))].peer;
  const int before = pass.backward ? pass.run + 1 : pass.run - 1;
  const auto found = values_.find({*begun_, pass.vrank, before, pass.backward, sender});
  awaited_ = pass;
  if (found == values_.end()) return std::nullopt;
  BoundaryValue value = std::move(found->second);
  values_.erase(found);
  if (value.in_group != in_group_ || !fits(value.shape, value.dtype)) {
    outbox_.report(messages::Suspect{sender, "sent a value of another shape or type than was expected"});
    return std::nullopt;
  }
  awaited_.reset();
  return value;
}

void StageExchange::send(GradientDigests digests) {
  invariant(going(), "digests are sent while the step's rank gradients are computed");
  const Payload payload(std::move(digests));
  for (const int other : replica_.members())
    if (other != position_.index) outbox_.send(position_.generation->members[static_cast<size_t>(other)].peer, payload);
}

std::optional<std::map<int, GradientDigests>> StageExchange::take_digests(int vrank, bool samples) {
  invariant(going(), "digests are taken while the step's rank gradients are computed");
  const auto found = digests_.find({*begun_, vrank});
  std::map<int, GradientDigests> all;
  undigested_ = vrank;
  for (const int other : replica_.members()) {
    if (other == position_.index) continue;
    if (found == digests_.end()) return std::nullopt;
    const PeerId peer = position_.generation->members[static_cast<size_t>(other)].peer;
    const auto of_other = found->second.find(peer);
    if (of_other == found->second.end()) return std::nullopt;
    const size_t expected = samples ? replica_.tensors_of(other).size() * sizeof(Digest) : 0;
    if (of_other->second.digests.bytes != expected) {
      outbox_.report(messages::Suspect{peer, "sent the digests of other tensors than its own"});
      found->second.erase(of_other);
      return std::nullopt;
    }
    all.emplace(other, of_other->second);
  }
  if (found != digests_.end()) digests_.erase(found);
  undigested_.reset();
  return all;
}

std::string StageExchange::missing() const {
  if (going() && undigested_) return fmt::format("digests of virtual rank {} from other members", *undigested_);
  if (!going() || !awaited_) return "";
  const int id = position_.generation->members[static_cast<size_t>(index_of_sender(*awaited_))].id;
  return fmt::format("{} of virtual rank {} from worker {}", awaited_->backward ? "a gradient" : "a value",
                     awaited_->vrank, id);
}

bool StageExchange::counts(const At& at) const {
  return at.generation >= std::max(position_.promised, position_.number()) &&
         (!position_.loaded || at.step >= position_.completed);
}

void StageExchange::receive(const Message& m, const BoundaryValue& value) {
  const At at{m.generation, m.step};
  if (!counts(at)) return;
  const auto bytes = static_cast<size_t>(value.shape.numel() * size_of(value.dtype));
  if (value.in_group ? !value.elements.empty() : !are_pieces(value.elements, bytes))
    return outbox_.report(
        messages::Suspect{m.sender, fmt::format("sent a malformed {}: a value has another size", value.kKind.name)});
  values_.insert_or_assign({at, value.vrank, value.run, value.backward, m.sender}, value);
}

void StageExchange::receive(const Message& m, const GradientDigests& digests) {
  const At at{m.generation, m.step};
  if (counts(at)) digests_[{at, digests.vrank}][m.sender] = digests;
}

void StageExchange::prune() {
  std::erase_if(values_, [&](const auto& entry) { return !counts(std::get<0>(entry.first)); });
  std::erase_if(digests_, [&](const auto& entry) { return !counts(std::get<0>(entry.first)); });
}

}  // namespace elinvar
