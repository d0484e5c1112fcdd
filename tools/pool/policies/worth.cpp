#include "tools/pool/policies/worth.h"

#include <algorithm>
#include <cmath>

#include "tools/pool/division.h"
#include "tools/pool/mixing.h"

namespace elinvar::pool {

Worth::Worth(const Offer& offer) : offer_(offer), pool_(offer.pool()) {
  for (size_t i = 0; i < pool_.jobs.size(); ++i) {
    const Job& job = pool_.jobs[i];
    double reference = 0;
    for (const std::string& kind : offer.kinds()) {
      if (!job.allows(kind)) continue;
      for (const Form& form : job.forms) {
        if (form.width > 1 && form != job.form) continue;
        reference = std::max(reference,
                             job.speed->rate({{kind, job.min_workers}}, form).samples / job.min_workers / form.width);
      }
    }
    reference_.push_back(reference);
    double now = offer.present(i).empty() ? 0 : speed(i, offer.present(i), job.form);
    if (now <= 0) now = job.min_workers;
    window_.push_back(reference > 0 ? std::min(pool_.horizon, job.left() / reference / now) : 0);
    weight_.push_back(std::exp2(std::clamp(job.priority, -10, 10)) * (offer.at_stake(job) ? 4 : 1));
  }
}

double Worth::left(size_t i) const { return can_run(i) ? pool_.jobs[i].left() / reference_[i] : kNever; }

double Worth::speed(size_t i, const Mix& mix, const Form& form) const {
  if (mix.empty() || !can_run(i)) return 0;
  return pool_.jobs[i].speed->rate(mix, form).samples / reference_[i];
}

Option Worth::option(size_t i, const Mix& mix, const Form& form) const {
  const Job& job = pool_.jobs[i];
  Option option{mix, form, 0};
  if (!can_run(i)) return option;
  const Mix& present = offer_.present(i);
  if (present.empty()) {
    // The start-up cost is due whenever the job starts, so waiting saves nothing; it only shortens the horizon.
    const double after = std::max(0.0, pool_.horizon - job.costs.start);
    option.worth = weight_[i] * speed(i, mix, form) * std::min(window_[i], after);
    return option;
  }
  Mix kept;
  if (form == job.form)
    for (const auto& [kind, n] : mix)
      if (const int stay = std::min(n, count_of(present, kind)); stay > 0) kept[kind] = stay;
  double lost = change_of(job, present, kept, mix, form).samples / reference_[i];
  // Who is stopped must be started again.
  if (mix.empty()) lost += job.costs.start * speed(i, present, job.form);
  option.worth = weight_[i] * (speed(i, mix, form) * window_[i] - lost);
  return option;
}

Option Worth::option(size_t i, const Mix& mix) const {
  const Job& job = pool_.jobs[i];
  Option best{mix, job.forms.front(), -kNever};
  for (const Form& form : job.forms)
    if (form.width == 1 || (form == job.form && job.running()))
      if (speed(i, mix, form) > 0)
        if (Option option = this->option(i, mix, form); option.worth > best.worth) best = std::move(option);
  return best;
}

std::vector<Option> Worth::options(size_t i, const std::string& kind, int slots) const {
  std::vector<Option> found;
  for (const Form& form : pool_.jobs[i].forms) {
    if (slots % form.width != 0) continue;
    const Mix mix{{kind, slots / form.width}};
    // What nobody has seen is for trials.
    if (form.width > 1 && pool_.jobs[i].speed->rate(mix, form).error >= kFamiliar) continue;
    if (offer_.allowed(i, mix, form) && speed(i, mix, form) > 0) found.push_back(option(i, mix, form));
  }
  return found;
}

bool Worth::wasteful(size_t i, const Mix& mix, const Form& form) const {
  const Job& job = pool_.jobs[i];
  if (mix.size() < 2 || job.virtual_ranks == 0) return false;
  std::vector<Devices> devices;
  for (const auto& [kind, n] : mix) devices.push_back({n, job.speed->rate({{kind, 1}}, form).samples});
  return mixing(job.virtual_ranks, devices).waste > kMostWaste;
}

}  // namespace elinvar::pool
