#include "elastic/protocol/facts_outbox.h"

#include <utility>

namespace elinvar {

constexpr size_t kMostTold = 64;  // the largest number of steps in one message

void FactsOutbox::add(const StepFacts& facts) { unconfirmed_.push_back(encode_facts(facts)); }

void FactsOutbox::adopt(const std::vector<EncodedFacts>& facts) { unconfirmed_ = {facts.begin(), facts.end()}; }

void FactsOutbox::confirm(int64_t step) {
  while (!unconfirmed_.empty() && unconfirmed_.front().step <= step) unconfirmed_.pop_front();
}

std::vector<EncodedFacts> FactsOutbox::before(int64_t step) const {
  std::vector<EncodedFacts> facts;
  for (const EncodedFacts& of : unconfirmed_)
    if (of.step < step) facts.push_back(of);
  return facts;
}

void FactsOutbox::report_all() { report(after(-1)); }

void FactsOutbox::report_new() {
  if (position_.index == 0) report(after(reported_));
}

void FactsOutbox::report_new(messages::Alive& heartbeat) {
  if (position_.index != 0) return;
  std::vector<FactsBatch> facts = after(reported_);
  if (!facts.empty()) {
    heartbeat.told = std::move(facts.back());
    facts.pop_back();
  }
  report(std::move(facts));
}

void FactsOutbox::report(std::vector<FactsBatch> facts) {
  for (FactsBatch& told : facts) outbox_.report(messages::Facts{std::move(told)});
}

// Returns the contents of messages, each of bounded size, with the unconfirmed facts of later steps. Steps whose update
// is not made yet count as not reported.
std::vector<FactsBatch> FactsOutbox::after(int64_t step) {
  std::vector<FactsBatch> messages;
  for (const EncodedFacts& facts : unconfirmed_) {
    if (facts.step <= step) continue;
    if (messages.empty() || messages.back().steps.size() == kMostTold) messages.emplace_back();
    messages.back().steps.push_back(facts);
  }
  reported_ = position_.step - 1;
  return messages;
}

}  // namespace elinvar
