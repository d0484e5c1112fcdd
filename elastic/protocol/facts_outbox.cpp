#include "elastic/protocol/facts_outbox.h"

namespace elinvar {

constexpr size_t kMostTold = 64;  // the largest number of steps in one message

void FactsOutbox::add(const StepFacts& facts) { unconfirmed_.push_back(told_facts(facts)); }

void FactsOutbox::adopt(const std::vector<ToldFacts>& facts) { unconfirmed_ = {facts.begin(), facts.end()}; }

void FactsOutbox::confirm(int64_t step) {
  while (!unconfirmed_.empty() && unconfirmed_.front().step <= step) unconfirmed_.pop_front();
}

std::vector<ToldFacts> FactsOutbox::before(int64_t step) const {
  std::vector<ToldFacts> facts;
  for (const ToldFacts& of : unconfirmed_)
    if (of.step < step) facts.push_back(of);
  return facts;
}

std::vector<TellsFacts> FactsOutbox::all(int64_t made) { return after(-1, made); }
std::vector<TellsFacts> FactsOutbox::untold(int64_t made) { return after(told_, made); }

std::vector<TellsFacts> FactsOutbox::after(int64_t step, int64_t made) {
  std::vector<TellsFacts> messages;
  for (const ToldFacts& facts : unconfirmed_) {
    if (facts.step <= step) continue;
    if (messages.empty() || messages.back().steps.size() == kMostTold) messages.emplace_back();
    messages.back().steps.push_back(facts);
  }
  told_ = made - 1;
  return messages;
}

}  // namespace elinvar
