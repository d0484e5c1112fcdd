#pragma once
// What the benchmarks print: a table for people, or a JSON file with one object a row.
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tools/peak/peak.h"

namespace elinvar::bench {

class Report {
 public:
  Report(const Peak& peak, int threads, std::string isa);

  // A case that did `gflop` (0: not counted) and moved `gbyte` (0: not counted) in `seconds`; `items` of `unit` a run;
  // more figures by name, printed after the row.
  void add(const std::string& name, double seconds, double gflop, double gbyte, double items = 0.0,
           const std::string& unit = "", const nlohmann::ordered_json& more = {});
  const nlohmann::json& rows() const { return rows_; }

 private:
  Peak peak_;
  nlohmann::json rows_ = nlohmann::json::array();
  int threads_;
  std::string isa_;
};

// One JSON object a line.
void write_json(const std::string& path, const nlohmann::json& rows);

}  // namespace elinvar::bench
