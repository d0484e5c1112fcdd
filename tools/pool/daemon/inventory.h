#pragma once
// Tracks the machines of all sources and their slots. A slot that a source names for the first time is recorded in the
// store; a slot that it no longer names is gone. A machine whose deadline moves closer gives notice: nothing more is
// started there, and its processes must leave.
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tools/pool/hosts/source.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

struct NamedSource {
  std::string name;
  std::unique_ptr<Source> source;
};

struct SlotState {
  SlotRecord record;
  bool confirmed = false;  // its source has named it since this daemon started
  double until = kNever;   // when its machine goes
  bool leaving = false;    // nothing may start there, and its processes must leave
  double idle_since = 0;   // 0: in use
};

class Inventory {
 public:
  Inventory(Store& store, std::vector<NamedSource> sources) : store_(store), sources_(std::move(sources)) {}

  void load();  // reads the slots in the store
  // Asks every source for its machines. `wanted`: how many more slots could be used. A machine that goes within `grace`
  // seconds counts as having given notice. Returns whether anything changed that plans depend on.
  bool refresh(double now, int wanted, double grace);
  // Gives machines back: those that gave notice once they are empty, and those that were idle for `idle` seconds.
  // Returns whether some slot has been unused for a while, so that no more machines are needed.
  bool release(double now, double idle, const std::function<bool(Id slot)>& occupied);
  void want_nothing();        // cancels requests for machines that have not come yet
  void clock_was_set_back();  // restarts idle times

  const std::map<Id, SlotState>& slots() const { return slots_; }
  const SlotState* find(Id slot) const;  // null: gone
  bool all_sources_answered() const;     // each at least once
  // Returns the command to run here so that `words` run on the slot's machine (hosts/source.h). Throws Failure if the
  // machine is gone.
  std::vector<std::string> command(const SlotRecord& slot, std::vector<std::string> words) const;

 private:
  struct Answer {  // the last answer of a source
    std::vector<Machine> machines;
    bool heard = false;
    std::string trouble;  // why it does not answer now
  };
  bool refresh(const NamedSource& source, double now, double grace);
  bool notice(const Machine& machine, const std::vector<Id>& slots, double now, double grace);
  bool drop(const std::function<bool(const SlotRecord&)>& gone, double now);
  const Machine* machine_of(const SlotRecord& slot) const;  // null: gone, or no longer in pool.toml
  Source* source_of(const SlotRecord& slot) const;

  Store& store_;
  std::vector<NamedSource> sources_;
  std::map<std::string, Answer> answers_;
  std::map<Id, SlotState> slots_;
};

}  // namespace elinvar::pool
