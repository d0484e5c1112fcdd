#pragma once
// Machines that come and go, and their slots. A slot that a source names for the first time is put on file; one that
// it names no more is gone. A machine whose end comes nearer gives notice: nothing is started there any more, and what
// runs there has to leave.
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
  bool confirmed = false;  // its source has named it since this daemon began
  double until = kNever;   // its machine is gone by then
  bool leaving = false;    // nothing is to be started there, and what is there has to leave
  double idle_since = 0;   // 0: it is in use
};

class Inventory {
 public:
  Inventory(Store& store, std::vector<NamedSource> sources) : store_(store), sources_(std::move(sources)) {}

  void load();  // the slots on file
  // Asks every source what there is; `wanted` more slots would be used. A machine that is gone within `grace` seconds
  // gives notice. Returns whether anything changed that a plan depends on.
  bool refresh(double now, int wanted, double grace);
  // Gives back machines that gave notice as soon as they are empty, and those that were idle for `idle` seconds.
  // Returns whether some slot has been unused for a while, so that no more machines are wanted.
  bool release(double now, double idle, const std::function<bool(Id slot)>& occupied);
  void want_nothing();        // machines that were asked for and have not come need not come
  void clock_was_set_back();  // idle times begin anew

  const std::map<Id, SlotState>& slots() const { return slots_; }
  const SlotState* find(Id slot) const;  // null: it is gone
  bool all_sources_answered() const;     // each at least once
  // What to run here so that `words` run on the slot's machine (hosts/source.h). Failure if the machine is gone.
  std::vector<std::string> command(const SlotRecord& slot, std::vector<std::string> words) const;

 private:
  struct Answer {  // of a source
    std::vector<Machine> machines;
    bool heard = false;
    std::string trouble;  // why it does not answer now
  };
  bool refresh(const NamedSource& source, double now, double grace);
  bool notice(const Machine& machine, const std::vector<Id>& slots, double now, double grace);
  bool drop(const std::function<bool(const SlotRecord&)>& gone, double now);
  const Machine* machine_of(const SlotRecord& slot) const;  // null: it is gone, or its source is served no more
  Source* source_of(const SlotRecord& slot) const;

  Store& store_;
  std::vector<NamedSource> sources_;
  std::map<std::string, Answer> answers_;
  std::map<Id, SlotState> slots_;
};

}  // namespace elinvar::pool
