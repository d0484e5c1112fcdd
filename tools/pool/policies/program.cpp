// MalleTrain's plan (Ma et al., ICPE'24, after BFTrainer), as a mixed-integer program: get most work done within the
// horizon, minus the costs of changes.
//
//   maximise    sum over jobs j, sizes s of  utility(j, s) x(j, s)          (utility.h)
//   such that   sum over s of x(j, s) = 1 for each job j
//               sum over j, s of slots(j, s, k) x(j, s) <= slots(k) for each kind k
//               x(j, s) is 0 or 1
//
// One of the sizes is nothing, unless the job is in its turn, due, or admitted before one of lower priority.
//
// MalleTrain has a variable for each job and node. Here numbers are enough, because nodes of one kind are
// interchangeable and a job keeps those that it has (offer.h): a job that goes from 5 to 3 of a kind drops two, and no
// worker moves from one node to another of its kind, which is MalleTrain's "no migration". Speeds need not be piecewise
// linear: each size is a column. Sizes with no more utility than a smaller one are left out. Allocations of several
// kinds are columns only where the job has one now or the greedy plan grants one.
//
// The search starts with the greedy plan (growth.h), which is also the result if the solver finds nothing better in
// time.
#include <fmt/format.h>

#include <algorithm>

#include "tools/pool/policies/admission.h"
#include "tools/pool/policies/choice.h"
#include "tools/pool/policies/growth.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

std::vector<Grant> greedy(const Pool& pool, const Utility& utility) {
  Offer offer(pool);
  grow(offer, utility, admit(offer));
  std::vector<Grant> grants;
  for (size_t i = 0; i < pool.jobs.size(); ++i) grants.push_back(offer.grant(i));
  return grants;
}

// Returns the sizes that a job may have; the first one is the greedy plan's.
std::vector<Option> sizes(const Offer& offer, const Utility& utility, size_t i, const Grant& grant) {
  const Job& job = offer.pool().jobs[i];
  std::vector<Option> options{utility.option(i, grant.allocation, grant.shape)};
  if (!utility.can_run(i)) return options;
  if (offer.allowed(i, {}, job.shape) && (grant.allocation.empty() || may_wait(offer, i)))
    options.push_back(utility.option(i, {}, job.shape));
  const Allocation& present = offer.present(i);
  if (!present.empty() && offer.allowed(i, present, job.shape))
    options.push_back(utility.option(i, present, job.shape));
  for (const std::string& kind : offer.kinds()) {
    double best = -kNever;
    for (int n = job.min_workers; n <= std::min(job.max_workers, offer.slots(kind)); ++n) {
      Option option = utility.option(i, {{kind, n}});
      if (option.utility <= best || !offer.allowed(i, option.allocation, option.shape)) continue;
      best = option.utility;
      options.push_back(std::move(option));
    }
  }
  return options;
}

}  // namespace

Plan program(const Pool& pool) {
  Offer offer(pool);
  const Utility utility(offer);
  const std::vector<Grant> start = greedy(pool, utility);
  std::vector<std::vector<Option>> options;
  std::vector<std::vector<Choice>> groups;
  double of_start = 0;
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    options.push_back(sizes(offer, utility, i, start[i]));
    of_start += options.back().front().utility;
    groups.emplace_back();
    for (const Option& option : options.back()) {
      Choice choice{option.utility, {}};
      for (const auto& [kind, n] : option.allocation) {
        const auto at = std::find(offer.kinds().begin(), offer.kinds().end(), kind) - offer.kinds().begin();
        choice.uses.emplace_back(static_cast<int>(at), n * option.shape.width);
      }
      groups.back().push_back(std::move(choice));
    }
  }
  std::vector<double> capacities;
  for (const std::string& kind : offer.kinds()) capacities.push_back(offer.slots(kind));

  const std::vector<size_t> first(groups.size(), 0);
  const std::optional<Chosen> chosen =
      groups.empty() || capacities.empty() ? std::nullopt : choose(groups, capacities, first);
  std::vector<Grant> grants;
  const bool better = chosen && chosen->utility >= of_start;
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    const Option& option = options[i][better ? chosen->of[i] : 0];
    std::string reason = offer.grant(i).reason;
    if (!option.allocation.empty())
      reason = fmt::format("{}: utility {:.0f} worker-seconds in the next {:.0f} s", text_of(option.allocation),
                           option.utility, pool.horizon);
    else if (pool.jobs[i].running()) reason = "gives its slots to jobs that make more of them";
    grants.push_back({option.allocation, option.shape, std::move(reason)});
  }
  offer.give_all(std::move(grants));
  if (!chosen) return settled(offer, utility, "the solver found nothing: the greedy plan", groups.empty() ? 0 : 1);
  const double value = std::max(chosen->utility, of_start);
  const double gap = chosen->bound <= 0 ? 0 : std::clamp((chosen->bound - value) / chosen->bound, 0.0, 1.0);
  return settled(offer, utility,
                 fmt::format("{} within {:.2f} % of the best", better ? "a program" : "the greedy plan,", 100 * gap),
                 gap);
}

}  // namespace elinvar::pool
