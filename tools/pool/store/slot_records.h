#pragma once
// The table of slots: every slot that ever existed. Ids are never reused.
#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct SlotRecord {
  Id id = 0;
  std::string source = {}, host = {}, lease = {}, kind = {};  // tools/pool/hosts/source.h
  std::string device = {};                                    // for `train join`: "cpu", or its own GPU, "cuda:0"
  int threads = 1;
  double since = 0, gone = 0;  // gone: 0 while it exists
};

class SlotRecords {
 public:
  explicit SlotRecords(SQLite::Database& db) : db_(db) {}

  Id add(const SlotRecord& slot);  // returns its id
  void lose(Id slot, double now);  // its machine is gone
  // In the order of their ids.
  std::vector<SlotRecord> present() const;
  std::vector<SlotRecord> all() const;  // including those that are gone

 private:
  std::vector<SlotRecord> select(const std::string& where) const;
  SQLite::Database& db_;
};

}  // namespace elinvar::pool
