#include "tools/pool/policies/offer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

#include "tensor/base/check.h"
#include "tensor/base/failure.h"
#include "tools/pool/policies/dealing.h"

namespace elinvar::pool {
namespace {

// The first `n` workers of a mix, kind by kind as the job prefers them.
Mix first_of(const Mix& mix, int n, const Job& job) {
  std::vector<std::string> kinds = job.kinds;
  if (kinds.empty())
    for (const auto& [kind, count] : mix) kinds.push_back(kind);
  Mix taken;
  for (const std::string& kind : kinds)
    if (const int m = std::min(n, count_of(mix, kind)); m > 0) taken[kind] = m, n -= m;
  return taken;
}

}  // namespace

int count_of(const Mix& mix, const std::string& kind) {
  const auto found = mix.find(kind);
  return found == mix.end() ? 0 : found->second;
}

std::string text_of(const Mix& mix) {
  std::string text;
  for (const auto& [kind, n] : mix) text += fmt::format("{}{} {}", text.empty() ? "" : " + ", n, kind);
  return text.empty() ? "nothing" : text;
}

Offer::Offer(const Pool& pool, Running running)
    : pool_(pool),
      running_(running),
      wishes_(pool.jobs.size()),
      present_(pool.jobs.size()),
      must_(pool.jobs.size(), false) {
  std::unordered_map<Id, const Slot*> usable;
  for (const Slot& slot : pool.slots)
    if (!slot.going(pool.now)) usable[slot.id] = &slot, ++total_[slot.kind];
  for (const auto& [kind, n] : total_) kinds_.push_back(kind);
  free_ = total_;
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    const Job& job = pool.jobs[i];
    const size_t width = job.form.width;
    for (size_t at = 0; at + width <= job.slots.size(); at += width) {
      bool there = true;
      for (size_t k = 0; k < width; ++k) there = there && usable.count(job.slots[at + k]);
      if (there) ++present_[i][usable[job.slots[at]]->kind];
    }
    wishes_[i] = {{}, job.forms.front(), "waits for slots"};
    const int has = workers(present_[i]);
    if (has < job.min_workers) continue;
    must_[i] = pool.now - job.since < pool.turn;
    if (running == Running::kStay) {
      give(i, present_[i], job.form, "goes on as it is");
    } else if (must_[i]) {
      give(i, first_of(present_[i], job.min_workers, job), job.form, "in its turn");
    }
  }
  start_with_musts();
}

void Offer::start_with_musts() {
  for (const size_t i : due_jobs(pool_)) {
    const std::optional<Wish> least = this->least(i);
    if (!least) {
      waits_ = i;
      break;
    }
    must_[i] = true;
    give(i, least->mix, least->form, "is due");
  }
  if (!waits_) return;
  wishes_[*waits_].reason = "is due; slots are kept for it as others leave them";
  most_.resize(pool_.jobs.size());
  for (size_t i = 0; i < pool_.jobs.size(); ++i) {
    most_[i] = slots_of(present_[i], pool_.jobs[i].form);
    for (const auto& [kind, n] : slots_of(wishes_[i].mix, wishes_[i].form))
      most_[i][kind] = std::max(most_[i][kind], n);
  }
}

Mix Offer::slots_of(const Mix& mix, const Form& form) const {
  Mix slots;
  for (const auto& [kind, n] : mix) slots[kind] = n * form.width;
  return slots;
}

int Offer::slots(const std::string& kind) const { return count_of(total_, kind); }

int Offer::free(const std::string& kind) const { return count_of(free_, kind); }

bool Offer::allowed(size_t i, const Mix& mix, const Form& form) const {
  const Job& job = pool_.jobs[i];
  const int n = workers(mix);
  if (n == 0) return !must_[i];
  if (n < job.min_workers || n > job.max_workers) return false;
  if (std::find(job.forms.begin(), job.forms.end(), form) == job.forms.end()) return false;
  for (const auto& [kind, count] : slots_of(mix, form)) {
    if (!job.allows(kind) || count > slots(kind)) return false;
    if (waits_ && pool_.jobs[*waits_].allows(kind) && count > count_of(most_[i], kind)) return false;
  }
  // Wide workers need luck with hosts, which those who must have something do not rely on.
  if (!must_[i] || form.width == 1) return true;
  int stay = 0;
  for (const auto& [kind, count] : mix) stay += std::min(count, count_of(present_[i], kind));
  return form == job.form && stay >= job.min_workers;
}

bool Offer::fits(size_t i, const Mix& mix, const Form& form) const {
  if (!allowed(i, mix, form)) return false;
  const Mix has = slots_of(wishes_[i].mix, wishes_[i].form);
  for (const auto& [kind, n] : slots_of(mix, form))
    if (n > free(kind) + count_of(has, kind)) return false;
  return true;
}

void Offer::give(size_t i, Mix mix, Form form, std::string reason) {
  for (const auto& [kind, n] : slots_of(wishes_[i].mix, wishes_[i].form)) free_[kind] += n;
  for (const auto& [kind, n] : slots_of(mix, form)) {
    free_[kind] -= n;
    invariant(free_[kind] >= 0, "a policy gives what does not fit");
  }
  wishes_[i] = {std::move(mix), form, std::move(reason)};
}

void Offer::give_all(std::vector<Wish> wishes) {
  for (size_t i = 0; i < wishes_.size(); ++i) give(i, {}, wishes_[i].form, "");
  for (size_t i = 0; i < wishes_.size(); ++i) give(i, wishes[i].mix, wishes[i].form, std::move(wishes[i].reason));
}

std::optional<Wish> Offer::least(size_t i) const {
  const Job& job = pool_.jobs[i];
  const std::vector<std::string>& order = job.kinds.empty() ? kinds_ : job.kinds;
  for (const Form& form : job.forms)
    for (const std::string& kind : order) {
      const Mix mix{{kind, job.min_workers}};
      if (form.width == 1 && fits(i, mix, form) && job.speed->rate(mix, form).samples > 0)
        return Wish{mix, form, "starts with its minimum"};
    }
  const bool one_kind_would_do = std::any_of(order.begin(), order.end(), [&](const std::string& kind) {
    return slots(kind) >= job.min_workers && std::any_of(job.forms.begin(), job.forms.end(), [&](const Form& form) {
             return form.width == 1 && job.speed->rate({{kind, job.min_workers}}, form).samples > 0;
           });
  });
  if (running_ == Running::kStay && one_kind_would_do) return {};
  for (const Form& form : job.forms) {
    Mix mix;
    int left = job.min_workers;
    for (const std::string& kind : order)
      if (const int n = std::min(left, free(kind)); form.width == 1 && n > 0 && job.allows(kind))
        mix[kind] = n, left -= n;
    if (left == 0 && fits(i, mix, form) && job.speed->rate(mix, form).samples > 0)
      return Wish{mix, form, "starts with its minimum, of several kinds"};
  }
  return {};
}

bool Offer::at_stake(const Job& job) const {
  if (job.deadline == kNever) return false;
  double best = 0;
  for (const std::string& kind : job.kinds.empty() ? kinds_ : job.kinds)
    best = std::max(best, job.speed->rate({{kind, job.fixed_workers}}, job.forms.front()).samples);
  return best > 0 && pool_.now + 1.2 * job.seconds_left(best) > job.deadline;
}

std::vector<size_t> Offer::order() const {
  std::vector<size_t> order(pool_.jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<bool> urgent;
  for (const Job& job : pool_.jobs) urgent.push_back(at_stake(job));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Job &left = pool_.jobs[a], &right = pool_.jobs[b];
    if (left.priority != right.priority) return left.priority > right.priority;
    if (urgent[a] != urgent[b]) return bool(urgent[a]);
    return left.submitted < right.submitted;
  });
  return order;
}

Plan Offer::plan(std::string note, double gap) const {
  Plan plan = deal(pool_, wishes_);
  plan.note = std::move(note);
  plan.gap = gap;
  return plan;
}

}  // namespace elinvar::pool
