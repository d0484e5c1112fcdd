#include "elastic/ledger/goodput.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace elinvar {
namespace {

constexpr size_t kWindow = 31;
constexpr const char* kNames[] = {"starting",      "holding",  "recovering", "evaluating",
                                  "checkpointing", "changing", "finishing"};

}  // namespace

Goodput::Goodput(double now) : begin_(now), last_(now) { note(Cause::starting); }

void Goodput::note(Cause cause, double when) {
  std::optional<double>& noted = noted_[static_cast<size_t>(cause)];
  noted = std::min(noted.value_or(when), when);
}

void Goodput::step(double now, int64_t generation) {
  const double seconds = now - last_;
  last_ = now;
  const auto counts = [&](const std::optional<double>& when) { return when && *when <= now; };
  const auto cause = std::find_if(noted_.begin(), noted_.end(), counts);
  if (cause != noted_.end()) {
    lose(static_cast<size_t>(cause - noted_.begin()), std::max(0.0, seconds - usual_step()));
    std::replace_if(noted_.begin(), noted_.end(), counts, std::nullopt);
    return;
  }
  // Other members have another usual step; the old one serves until the new one is known.
  if (generation != generation_) undisturbed_.clear();
  generation_ = generation;
  undisturbed_.push_back(seconds);
  if (undisturbed_.size() > kWindow) undisturbed_.pop_front();
}

void Goodput::finish(double now) {
  lose(static_cast<size_t>(Cause::finishing), now - last_);
  last_ = end_ = now;
}

double Goodput::share(double now) const {
  const double whole = (end_ > 0 ? end_ : now) - begin_;
  double lost = 0;
  for (const Lost& l : lost_) lost += l.seconds;
  return whole > 0 ? std::max(0.0, whole - lost) / whole : 0;
}

nlohmann::ordered_json Goodput::summary(double now) const {
  const double whole = (end_ > 0 ? end_ : now) - begin_;
  nlohmann::ordered_json json = {{"seconds", whole},
                                 {"goodput", share(now)},
                                 {"training", share(now) * whole},
                                 {"lost", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < kCauses; ++i)
    if (lost_[i].times > 0) json["lost"][kNames[i]] = {{"seconds", lost_[i].seconds}, {"times", lost_[i].times}};
  return json;
}

double Goodput::usual_step() const {
  if (undisturbed_.empty()) return 0;
  std::vector<double> sorted(undisturbed_.begin(), undisturbed_.end());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void Goodput::lose(size_t cause, double seconds) {
  lost_[cause].seconds += seconds;
  ++lost_[cause].times;
}

}  // namespace elinvar
