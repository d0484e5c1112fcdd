#include "elastic/session/watch.h"

#include <fmt/format.h>

namespace elinvar {

void Watch::follow(int64_t term, Seconds now) {
  term_ = term;
  heard_ = now;
  lost_ = false;
}

// A message from the coordinator ends the time out of touch: decide() is not called while all is well.
void Watch::heard(Seconds now) {
  heard_ = now;
  if (lost_) return;
  out_since_.reset();
  seen_.reset();
}

Watch::Decision Watch::decide(const std::optional<Observation>& observation, int rank, Seconds now) {
  if (!out_of_touch(now)) return {};
  if (!out_since_) out_since_ = now;
  if (now - *out_since_ > options_.hold)
    return {Do::leave, fmt::format("out of touch with any coordinator for {:g} s", options_.hold)};
  // Reconnecting to the known endpoint costs nothing; a living coordinator says whether this worker may still take
  // part.
  const Decision again = lost_ ? Decision{Do::reconnect, "the connection broke"} : Decision{};
  if (!observation) return again;
  if (observation->term > term_) return {Do::follow, "there is a new coordinator"};
  if (seen_ != observation) {
    seen_ = observation;
    still_since_ = now;
  }
  const int place = rank >= 0 ? rank : observation->members + options_.arrival;
  const Seconds patience = options_.takeover + place * options_.apart;
  if (now - still_since_ < patience) return again;
  still_since_ = now;  // if the takeover fails, waits as long again
  return {Do::take_over, fmt::format("the coordinator has not counted on for {:g} s", patience)};
}

}  // namespace elinvar
