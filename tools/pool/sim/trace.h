#pragma once
// The outside events of a pool: jobs that are submitted, and hosts that come and go. A trace is recorded or synthetic
// (synthetic.h) and is stored in two CSV files with a header line:
//
//   jobs.csv    submitted,model,fixed,min,max,samples,kinds,priority,deadline
//               kinds: allowed ones, separated by |, empty: all; deadline: seconds, or empty
//   hosts.csv   host,kind,slots,from,until,notice
//               one line for each period in which a host is there (until empty: forever). notice: how many seconds
//               before the end the pool is told; 0: the host fails
//
// Times are seconds from the start of the trace.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"
#include "tools/pool/sim/table.h"

namespace elinvar::pool {

struct TraceJob {
  double submitted = 0;
  std::string model;
  int fixed = 1, min = 1, max = 1;
  double samples = 0;
  std::vector<std::string> kinds;
  int priority = 0;
  double deadline = kNever;
};

struct TraceHost {
  std::string host, kind;
  int slots = 1;
  double from = 0, until = kNever, notice = 0;
};

struct Trace {
  std::vector<TraceJob> jobs;  // by submission
  std::vector<TraceHost> hosts;
};

// Errors name the file, the line and what was expected.
Trace read_trace(const std::filesystem::path& jobs, const std::filesystem::path& hosts);
void write_trace(const Trace& trace, const std::filesystem::path& jobs, const std::filesystem::path& hosts);

// Returns the job as a policy sees it when it is submitted. Its model must be in the table.
Job job_of(const TraceJob& job, Id id, const Table& table);

}  // namespace elinvar::pool
