#include "tools/bench/report.h"

#include <fmt/format.h>

#include <cstdio>

#include "tensor/base/check.h"

namespace elinvar::bench {

Report::Report(const Peak& peak, int threads, const std::string& isa)
    : Report(peak, fmt::format("{} thread{}, {}", threads, threads == 1 ? "" : "s", isa),
             {{"threads", threads}, {"isa", isa}}) {}
Report::Report(const Peak& peak, const std::string& gpu) : Report(peak, gpu, {{"gpu", gpu}}) {}
Report::Report(const Peak& peak, const std::string& title, nlohmann::json machine)
    : peak_(peak), machine_(std::move(machine)) {
  fmt::print("{}: peak {:.1f} GFLOP/s of fused multiply-adds, {:.1f} GB/s of copying\n\n", title, peak_.gflops,
             peak_.gb_per_s);
  fmt::print("{:<34} {:>10} {:>10} {:>7} {:>9} {:>16}\n", "case", "ms", "GFLOP/s", "peak", "GB/s", "rate");
}

void Report::write_to(const std::string& path) {
  path_ = path;
  file_.open(path);
  if (!file_) fail("cannot write {}", path);
}

void Report::add(const std::string& name, double seconds, double gflop, double gbyte, double items,
                 const std::string& unit, const nlohmann::ordered_json& more) {
  const auto or_dash = [](double value, const char* format) {
    return value > 0.0 ? fmt::format(fmt::runtime(format), value) : std::string("-");
  };
  fmt::print("{:<34} {:>10.3f} {:>10} {:>7} {:>9} {:>16}", name, seconds * 1e3, or_dash(gflop / seconds, "{:.1f}"),
             or_dash(100.0 * gflop / seconds / peak_.gflops, "{:.0f} %"), or_dash(gbyte / seconds, "{:.1f}"),
             items > 0.0 ? fmt::format("{:.1f} {}/s", items / seconds, unit) : "");
  for (const auto& [key, value] : more.items()) fmt::print("  {} {}", key, value.dump());
  fmt::print("\n");
  std::fflush(stdout);
  nlohmann::json row{{"case", name}, {"seconds", seconds}, {"peak_gflop_per_s", peak_.gflops}};
  row.update(machine_);
  if (gflop > 0.0) row["gflop_per_s"] = gflop / seconds;
  if (gbyte > 0.0) row["gbyte_per_s"] = gbyte / seconds;
  if (items > 0.0) row[unit + "_per_s"] = items / seconds;
  for (const auto& [key, value] : more.items()) row[key] = value;
  keep(row);
}

void Report::add_kernel(const std::string& of, const std::string& kernel, double seconds, int64_t launches) {
  fmt::print("  {:>9.3f} ms {:>6} launches  {}\n", seconds * 1e3, launches, kernel);
  std::fflush(stdout);
  nlohmann::json row{{"case", of}, {"kernel", kernel}, {"seconds", seconds}, {"launches", launches}};
  row.update(machine_);
  keep(row);
}

void Report::keep(const nlohmann::json& row) {
  rows_.push_back(row);
  if (path_.empty()) return;
  file_ << row.dump() << std::endl;
  if (!file_) fail("cannot write {}", path_);
}

void write_json(const std::string& path, const nlohmann::json& rows) {
  std::ofstream file(path);
  for (const auto& row : rows) file << row.dump() << '\n';
  file.flush();
  if (!file) fail("cannot write {}", path);
}

}  // namespace elinvar::bench
