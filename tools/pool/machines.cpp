// The keeper: machines that come and go, and their slots.
#include <algorithm>

#include "tensor/base/check.h"
#include "tools/pool/keeper.h"

namespace elinvar::pool {

void Keeper::look_at_machines() {
  for (const NamedSource& source : sources_) {
    try {
      machines_[source.name] = source.source->machines(now_, wanted_);
      trouble_.erase(source.name);
      answered_.insert(source.name);
    } catch (const Failure& failure) {  // no news
      if (trouble_.emplace(source.name, failure.what()).second) log(0, "trouble", failure.what(), source.name);
      continue;
    }
    look_at_source(source);
  }
  lose_slots([&](const SlotRecord& s) { return source_of(s) == nullptr; });  // pool.toml names it no more
}

void Keeper::look_at_source(const NamedSource& source) {
  std::set<Id> there;
  std::vector<SlotRecord> come;
  for (const Machine& m : machines_[source.name]) {
    std::vector<Id> slots;
    std::vector<std::string> missing = devices_of(m);
    for (const SlotRecord& s : slots_) {
      if (s.source != source.name || s.host != m.host || s.lease != m.lease || s.kind != m.kind ||
          s.threads != m.threads)
        continue;
      const auto device = std::find(missing.begin(), missing.end(), s.device);
      if (device == missing.end()) continue;
      missing.erase(device);
      slots.push_back(s.id);
    }
    there.insert(slots.begin(), slots.end());
    notice(m, slots);
    if (missing.empty()) continue;
    for (std::string& device : missing)
      come.push_back({.source = source.name,
                      .host = m.host,
                      .lease = m.lease,
                      .kind = m.kind,
                      .device = std::move(device),
                      .threads = m.threads,
                      .since = now_});
    log(0, "machine", fmt::format("{} slot{} of {}", m.slots, m.slots == 1 ? "" : "s", m.kind), m.host);
  }
  lose_slots([&](const SlotRecord& s) { return s.source == source.name && !there.contains(s.id); });
  if (come.empty()) return;
  store_.transaction([&] {
    for (SlotRecord& s : come) s.id = store_.add(s);
  });
  slots_.insert(slots_.end(), come.begin(), come.end());
  for (const SlotRecord& s : come) live_[s.id].until = machine_of(s)->until;
  changed_ = true;
}

// An end that comes nearer is a notice: somebody else is waiting for the machine.
void Keeper::notice(const Machine& machine, const std::vector<Id>& slots) {
  bool told = false;
  for (const Id id : slots) {
    Live& live = live_[id];
    const bool nearer = live.until != kNever && machine.until < live.until - 1;
    live.until = machine.until;
    if (live.leaving || !(nearer || live.until - now_ < options_.grace)) continue;
    live.leaving = changed_ = true;
    if (!told) log(0, "notice", fmt::format("it has to be left within {:.0f} s", live.until - now_), machine.host);
    told = true;
  }
}

void Keeper::lose_slots(const std::function<bool(const SlotRecord&)>& gone) {
  std::set<std::string> told;
  for (const SlotRecord& s : slots_) {
    if (!gone(s)) continue;
    store_.lose_slot(s.id, now_);
    live_.erase(s.id);
    changed_ = true;
    if (told.insert(s.host).second) log(0, "gone", "the machine is there no more", s.host);
  }
  std::erase_if(slots_, gone);
}

const SlotRecord* Keeper::slot(Id id) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const SlotRecord& s) { return s.id == id; });
  return found == slots_.end() ? nullptr : &*found;
}

const Machine* Keeper::machine_of(const SlotRecord& s) const {
  const auto source = machines_.find(s.source);
  if (source == machines_.end()) return nullptr;
  for (const Machine& m : source->second)
    if (m.host == s.host && m.lease == s.lease) return &m;
  return nullptr;
}

Source* Keeper::source_of(const SlotRecord& s) const {
  for (const NamedSource& source : sources_)
    if (source.name == s.source) return source.source.get();
  return nullptr;
}

}  // namespace elinvar::pool
