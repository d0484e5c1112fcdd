#pragma once
// The output of the benchmarks: a table for people, or a JSON file with one object per row.
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tools/peak/peak.h"

namespace elinvar::bench {

class Report {
 public:
  Report(const Peak& peak, int threads, const std::string& isa);
  Report(const Peak& peak, const std::string& gpu);

  // Also writes each further case to a file, as a line of JSON, when it is added: a later case may fail.
  void write_to(const std::string& path);

  // Adds a case that computed `gflop` (0: not counted) and moved `gbyte` (0: not counted) in `seconds`, with `items` of
  // `unit` per run. `more`: further figures by name, printed after the row.
  void add(const std::string& name, double seconds, double gflop, double gbyte, double items = 0.0,
           const std::string& unit = "", const nlohmann::ordered_json& more = {});
  // Adds what one kernel takes of the case `of`, all its launches together.
  void add_kernel(const std::string& of, const std::string& kernel, double seconds, int64_t launches);
  const nlohmann::json& rows() const { return rows_; }

 private:
  Report(const Peak& peak, const std::string& title, nlohmann::json machine);
  void keep(const nlohmann::json& row);

  Peak peak_;
  nlohmann::json machine_;  // machine fields of each row
  nlohmann::json rows_ = nlohmann::json::array();
  std::string path_;
  std::ofstream file_;
};

// Rounded to two decimals, for tables.
inline double rounded(double value) { return std::round(1e2 * value) / 1e2; }

// Writes one JSON object per line.
void write_json(const std::string& path, const nlohmann::json& rows);

}  // namespace elinvar::bench
