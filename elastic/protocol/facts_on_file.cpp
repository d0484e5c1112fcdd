#include "elastic/protocol/facts_on_file.h"

#include <algorithm>

namespace elinvar {

// No worker waits for a confirmation, but members keep unconfirmed facts and repeat them after a death.
constexpr Seconds kConfirmEvery = 1.9;
constexpr int64_t kMostUnconfirmed = 32;  // steps

bool FactsOnFile::write(const std::vector<StepFacts>& steps) {
  const std::optional<int64_t> on_file = job_.world.facts(steps);
  if (on_file) on_file_ = *on_file;
  else job_.superseded();
  return on_file.has_value();
}

bool FactsOnFile::take(const std::vector<StepFacts>& steps, Seconds now) {
  if (!write(steps)) return false;
  for (const StepFacts& facts : steps) {
    heard_ = std::max(heard_, facts.step);
    if (facts.step >= job_.steps) last_told_ = true;
    if (facts.state) agreed_state_ = std::max(agreed_state_, facts.step);
  }
  confirm(now);
  return true;
}

void FactsOnFile::confirm(Seconds now) {
  const int64_t known = std::min(on_file_, heard_);  // members must keep what was not reported yet
  if (known <= confirmed_ || (known < confirmed_ + kMostUnconfirmed && now < confirmed_at_ + kConfirmEvery)) return;
  confirmed_ = known;
  confirmed_at_ = now;
  for (const auto& [peer, w] : job_.workers)
    if (w.state == Worker::State::member || w.state == Worker::State::leaving)
      job_.send(peer, messages::Ack{}, /*generation=*/0, known);
}

}  // namespace elinvar
