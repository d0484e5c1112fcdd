#pragma once
// What happens to a pool from outside: jobs that are submitted, and hosts that come and go. Recorded or made up
// (synthetic.h), in two CSV files with a line of names:
//
//   jobs.csv    submitted,model,fixed,min,max,samples,kinds,priority,deadline
//               kinds: allowed ones, separated by |, empty: all; deadline: seconds, or empty
//   hosts.csv   host,kind,slots,from,until,notice
//               a host with so many slots is there from ... until (empty: for ever); a line for each such period.
//               notice: so many seconds before its end the pool is told; 0: it fails
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

// The job as a policy sees it when it is submitted. Its model must be in the table.
Job job_of(const TraceJob& job, Id id, const Table& table);

}  // namespace elinvar::pool
