#pragma once
// The progress of one simulated job: it stalls, then computes with the workers that are ready, then with all.
#include <algorithm>
#include <cmath>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

class Progress {
 public:
  explicit Progress(double now = 0) : now_(now), began_(now), stall_until_(now), ramp_until_(now) {}

  // Applies a change at `now`; its newcomers' slots are free after `wait` seconds. What is left of an earlier stall is
  // added to the new one.
  void change(double now, const Change& change, double wait, double meanwhile_rate, double rate) {
    const double stall = std::max(0.0, stall_until_ - now), ramp = std::max(0.0, ramp_until_ - now - stall);
    const bool joins = change.ramp > 0;
    stall_until_ = now + stall + change.stall + (joins ? 0 : wait);
    ramp_until_ = stall_until_ + (joins ? std::max(ramp, wait + change.ramp) : ramp);
    ramp_rate_ = std::min(joins ? meanwhile_rate : rate, ramp > 0 ? ramp_rate_ : kNever);
    now_ = now;
    rate_ = rate;
  }

  struct Part {
    double samples = 0;
    double standing = 0, steady = 0;  // seconds
  };
  Part advance(double to) {
    Part part;
    part.standing = std::clamp(stall_until_ - now_, 0.0, to - now_);
    const double ramp = std::clamp(ramp_until_ - std::max(now_, stall_until_), 0.0, to - now_ - part.standing);
    part.steady = to - now_ - part.standing - ramp;
    part.samples = ramp * ramp_rate_ + part.steady * rate_;
    now_ = to;
    return part;
  }

  // Returns when this many more samples will be done.
  double end(double samples) const {
    const double from = std::max(now_, stall_until_), ramp = std::max(0.0, ramp_until_ - from);
    if (samples <= ramp * ramp_rate_) return from + samples / ramp_rate_;
    return rate_ > 0 ? from + ramp + (samples - ramp * ramp_rate_) / rate_ : kNever;
  }

  double rate() const { return rate_; }
  double steady_since() const { return std::max(stall_until_, ramp_until_); }

  // Returns the samples done since the last checkpoint.
  double since_checkpoint(double now, double every) const {
    const double ran = std::max(0.0, now - steady_since());
    return rate_ * std::min(ran, std::fmod(std::max(0.0, now - began_), every));
  }

 private:
  double now_, began_;
  double stall_until_, ramp_until_;
  double ramp_rate_ = 0, rate_ = 0;
};

}  // namespace elinvar::pool
