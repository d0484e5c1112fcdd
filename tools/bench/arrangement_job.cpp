#include "tools/bench/arrangement_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tools/bench/elastic_job.h"
#include "tools/bench/job_files.h"

namespace elinvar::bench {
namespace {

// Bytes that the loopback interface has sent.
double loopback_bytes() {
  std::ifstream file("/sys/class/net/lo/statistics/tx_bytes");
  double bytes = 0;
  file >> bytes;
  return bytes;
}

double peak_megabytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1.024e-3 * std::stod(line.substr(6));  // from KiB
  return 0;
}

}  // namespace

int64_t ArrangementJob::measure(const std::string& network, size_t count) {
  const Folder folder;
  std::vector<std::string> options = {
      "--min-workers", std::to_string(workers),
      "--copies",      std::to_string(arrangement.copies),
      "--arrangement", fmt::format("zero={},tp={},pp={}", arrangement.zero, arrangement.tp, arrangement.pp)};
  options.insert(options.end(), more.begin(), more.end());
  ElasticJob job(folder.path, config_of(network, sizes, folder.path, 0), workers, threads, /*pinned=*/threads == 1,
                 options);
  job.await_steps(2);
  const double before = loopback_bytes();
  job.await_steps(count);
  megabytes.push_back(1e-6 * (loopback_bytes() - before) / static_cast<double>(count));
  steps.push_back(job.step_seconds(count));
  double peak = 0;
  for (const ElasticJob::Worker& worker : job.workers()) peak = std::max(peak, peak_megabytes(worker.pid));
  peaks.push_back(peak);
  return job.parameters();
}

}  // namespace elinvar::bench
