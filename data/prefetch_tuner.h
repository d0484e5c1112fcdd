#pragma once
// Chooses how many threads read batches ahead, and how many batches, by the time that computation waits for them. It
// adds one reader at a time while each makes batches at least 2 % faster, and removes the first that does not; then it
// stops. It decides when a batch is made, never what the batch holds.
#include <optional>
#include <string>

namespace elinvar {

struct PrefetchSettings {
  int threads = 1, prefetch = 4;
  bool operator==(const PrefetchSettings&) const = default;
};

class PrefetchTuner {
 public:
  PrefetchTuner(const PrefetchSettings& first, int most) : now_(first), most_(most) {}

  // Records that a batch came after `seconds`, of which the caller waited `waited`. Returns better settings once it has
  // seen enough to tell; otherwise null.
  std::optional<PrefetchSettings> record(double waited, double seconds);
  const std::string& reason() const { return reason_; }  // for the latest change of settings

 private:
  PrefetchSettings now_;
  const int most_;
  std::optional<PrefetchSettings> before_;  // the settings before a reader was added, while it is on trial
  double batch_before_ = 0;                 // seconds per batch with those settings
  bool settled_ = false;
  double waited_ = 0, seconds_ = 0;
  int batches_ = 0;
  std::string reason_;
};

}  // namespace elinvar
