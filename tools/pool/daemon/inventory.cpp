#include "tools/pool/daemon/inventory.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar::pool {

constexpr double kUnused = 10;  // seconds for which a slot must be idle before no more machines are requested

void Inventory::load() {
  std::map<Id, SlotState> on_file;
  for (SlotRecord& record : store_.slots.present()) {
    const auto known = slots_.find(record.id);
    SlotState state = known == slots_.end() ? SlotState{} : known->second;
    state.record = std::move(record);
    on_file.emplace(state.record.id, std::move(state));
  }
  slots_ = std::move(on_file);
}

bool Inventory::refresh(double now, int wanted, double grace) {
  bool changed = false;
  for (const NamedSource& source : sources_) {
    Answer& answer = answers_[source.name];
    try {
      answer.machines = source.source->machines(now, wanted);
      answer.heard = true;
      answer.trouble.clear();
    } catch (const Failure& failure) {  // keep the last answer
      if (answer.trouble.empty()) store_.log.add(now, 0, "trouble", failure.what(), source.name);
      answer.trouble = failure.what();
      continue;
    }
    changed |= refresh(source, now, grace);
  }
  return drop([&](const SlotRecord& s) { return source_of(s) == nullptr; }, now) || changed;  // removed from pool.toml
}

bool Inventory::refresh(const NamedSource& source, double now, double grace) {
  bool changed = false;
  std::set<Id> there;
  std::vector<SlotState> come;
  for (const Machine& m : answers_[source.name].machines) {
    std::vector<Id> slots;
    std::vector<std::string> missing = devices_of(m);
    for (const auto& [id, state] : slots_) {
      const SlotRecord& s = state.record;
      if (s.source != source.name || s.host != m.host || s.lease != m.lease || s.kind != m.kind ||
          s.threads != m.threads)
        continue;
      const auto device = std::find(missing.begin(), missing.end(), s.device);
      if (device == missing.end()) continue;
      missing.erase(device);
      slots.push_back(id);
    }
    there.insert(slots.begin(), slots.end());
    changed |= notice(m, slots, now, grace);
    if (missing.empty()) continue;
    for (std::string& device : missing)
      come.push_back({.record = {.source = source.name,
                                 .host = m.host,
                                 .lease = m.lease,
                                 .kind = m.kind,
                                 .device = std::move(device),
                                 .threads = m.threads,
                                 .since = now},
                      .confirmed = true,
                      .until = m.until});
    store_.log.add(now, 0, "machine", fmt::format("{} slot{} of {}", m.slots, m.slots == 1 ? "" : "s", m.kind), m.host);
  }
  changed |= drop([&](const SlotRecord& s) { return s.source == source.name && !there.contains(s.id); }, now);
  if (come.empty()) return changed;
  store_.transaction([&] {
    for (SlotState& s : come) s.record.id = store_.slots.add(s.record);
  });
  for (SlotState& s : come) slots_[s.record.id] = std::move(s);
  return true;
}

// A deadline that moves closer is a notice: another user is waiting for the machine.
bool Inventory::notice(const Machine& machine, const std::vector<Id>& slots, double now, double grace) {
  bool told = false;
  for (const Id id : slots) {
    SlotState& slot = slots_.at(id);
    const bool nearer = slot.until != kNever && machine.until < slot.until - 1;
    slot.confirmed = true;
    slot.until = machine.until;
    if (slot.leaving || !(nearer || slot.until - now < grace)) continue;
    slot.leaving = true;
    if (!told)
      store_.log.add(now, 0, "notice", fmt::format("it has to be left within {:.0f} s", slot.until - now),
                     machine.host);
    told = true;
  }
  return told;
}

bool Inventory::drop(const std::function<bool(const SlotRecord&)>& gone, double now) {
  std::set<std::string> told;
  for (const auto& [id, slot] : slots_) {
    if (!gone(slot.record)) continue;
    store_.slots.lose(id, now);
    if (told.insert(slot.record.host).second) store_.log.add(now, 0, "gone", "the machine is gone", slot.record.host);
  }
  return std::erase_if(slots_, [&](const auto& slot) { return gone(slot.second.record); }) > 0;
}

bool Inventory::release(double now, double idle, const std::function<bool(Id slot)>& occupied) {
  bool unused_for_a_while = false;
  std::map<const Machine*, const SlotRecord*> unused;  // null: in use
  for (auto& [id, slot] : slots_) {
    if (!slot.confirmed) continue;
    const bool taken = occupied(id);
    if (taken) slot.idle_since = 0;
    else if (slot.idle_since == 0) slot.idle_since = now;
    if (!taken && !slot.leaving && now - slot.idle_since > kUnused) unused_for_a_while = true;
    const Machine* machine = machine_of(slot.record);
    if (machine == nullptr) continue;
    const auto known = unused.emplace(machine, &slot.record).first;
    if (taken || !(slot.leaving || now - slot.idle_since > idle)) known->second = nullptr;
  }
  for (const auto& [machine, of] : unused) {
    if (of == nullptr || !source_of(*of)->release(*machine)) continue;
    for (auto& [id, slot] : slots_)
      if (machine_of(slot.record) == machine) slot.leaving = true;
  }
  return unused_for_a_while;
}

void Inventory::want_nothing() {
  for (const NamedSource& source : sources_) source.source->want_nothing();
}

void Inventory::clock_was_set_back() {
  for (auto& [id, slot] : slots_) slot.idle_since = 0;
}

const SlotState* Inventory::find(Id id) const {
  const auto found = slots_.find(id);
  return found == slots_.end() ? nullptr : &found->second;
}

bool Inventory::all_sources_answered() const {
  return std::all_of(sources_.begin(), sources_.end(), [&](const NamedSource& source) {
    const auto answer = answers_.find(source.name);
    return answer != answers_.end() && answer->second.heard;
  });
}

std::vector<std::string> Inventory::command(const SlotRecord& slot, std::vector<std::string> words) const {
  const Machine* machine = machine_of(slot);
  if (machine == nullptr) fail("{} is gone", slot.host);
  return source_of(slot)->command(*machine, std::move(words));
}

const Machine* Inventory::machine_of(const SlotRecord& s) const {
  const auto answer = answers_.find(s.source);
  if (answer == answers_.end()) return nullptr;
  for (const Machine& m : answer->second.machines)
    if (m.host == s.host && m.lease == s.lease) return &m;
  return nullptr;
}

Source* Inventory::source_of(const SlotRecord& s) const {
  for (const NamedSource& source : sources_)
    if (source.name == s.source) return source.source.get();
  return nullptr;
}

}  // namespace elinvar::pool
