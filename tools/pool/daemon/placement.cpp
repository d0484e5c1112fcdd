#include "tools/pool/daemon/placement.h"

#include <algorithm>

namespace elinvar::pool {

bool Placement::usable(Id id, double now) const {
  const SlotState* slot = inventory_.find(id);
  if (slot == nullptr || !slot->confirmed || slot->leaving) return false;
  return !backoff_.excluded(slot->record.host, now) || has_registered_worker(slot->record.host);
}

bool Placement::usable(const std::vector<Id>& slots, double now) const {
  return std::all_of(slots.begin(), slots.end(), [&](Id id) { return usable(id, now); });
}

bool Placement::free_for(Id job, const std::vector<Id>& slots, double now) const {
  return std::all_of(slots.begin(), slots.end(), [&](Id id) {
    if (!usable(id, now) || processes_.occupied(id)) return false;
    const std::string& host = inventory_.find(id)->record.host;
    return !backoff_.waiting(host, now) || (!backoff_.failed_for(host, job) && has_registered_worker(host));
  });
}

bool Placement::stays(const ProcessRecord& p) const {
  return p.leaving == 0 && std::none_of(p.slots.begin(), p.slots.end(), [&](Id id) {
           const SlotState* slot = inventory_.find(id);
           return slot == nullptr || slot->leaving;
         });
}

double Placement::until(const ProcessRecord& p) const {
  double until = kNever;
  for (const Id id : p.slots)
    if (const SlotState* slot = inventory_.find(id); slot != nullptr) until = std::min(until, slot->until);
  return until;
}

std::string Placement::host_of(const ProcessRecord& p) const {
  const SlotState* slot = p.slots.empty() ? nullptr : inventory_.find(p.slots.front());
  return slot == nullptr ? "" : slot->record.host;
}

std::string Placement::kind_of(const ProcessRecord& p) const {
  const SlotState* slot = p.slots.empty() ? nullptr : inventory_.find(p.slots.front());
  return slot == nullptr ? "" : slot->record.kind;
}

std::optional<Allocation> Placement::settled_allocation(Id job) const {
  Allocation allocation;
  for (const ProcessRecord* w : processes_.workers_of(job)) {
    const SlotState* slot = inventory_.find(w->slots.front());
    if (!w->registered || w->leaving > 0 || slot == nullptr) return std::nullopt;
    ++allocation[slot->record.kind];
  }
  return allocation;
}

int Placement::workers_of_kind(Id job, const std::string& kind) const {
  int count = 0;
  for (const ProcessRecord* w : processes_.workers_of(job))
    if (const SlotState* slot = inventory_.find(w->slots.front()); slot != nullptr && slot->record.kind == kind)
      ++count;
  return count;
}

bool Placement::has_registered_worker(const std::string& host) const {
  return processes_.has_registered_worker([&](Id id) {
    const SlotState* slot = inventory_.find(id);
    return slot != nullptr && slot->record.host == host;
  });
}

}  // namespace elinvar::pool
