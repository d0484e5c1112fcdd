#pragma once
// DIR/events.jsonl: the events of a run in order of time, for people and tools: starts, resumes, checkpoints, stops and
// changes of membership. Lines differ between equal runs because they hold times; nothing reads them back.
//
//   {"time":"2026-05-04T10:11:12.345Z","event":"checkpoint","step":400,"seconds":0.12}
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "elastic/ledger/line_file.h"
#include "elastic/ledger/utc_time.h"

namespace elinvar {

class EventLog {
 public:
  explicit EventLog(const std::filesystem::path& directory) : file_(directory / "events.jsonl") {}
  // Writes an event with `fields`, a JSON object. Returns the line that is written.
  nlohmann::ordered_json write(std::string_view event, const nlohmann::ordered_json& fields);
  bool restore() { return file_.restore(); }

 private:
  LineFile file_;
};

}  // namespace elinvar
