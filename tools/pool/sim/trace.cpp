#include "tools/pool/sim/trace.h"

#include <algorithm>
#include <cmath>
#include <charconv>
#include <fstream>

#include "tensor/base/check.h"

namespace elinvar::pool {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == at) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

// One line of a CSV file; fields are addressed by the names in the first line.
class Row {
 public:
  Row(const std::vector<std::string>& names, std::vector<std::string> fields, std::string where)
      : names_(names), fields_(std::move(fields)), where_(std::move(where)) {
    check(fields_.size() == names.size(), "{}: {} fields, expected {}", where_, fields_.size(), names.size());
  }

  const std::string& text(const char* name) const {
    const auto at = std::find(names_.begin(), names_.end(), name);
    check(at != names_.end(), "{}: there is no column '{}'", where_, name);
    return fields_[at - names_.begin()];
  }
  double number(const char* name, double least, double if_empty) const {
    const std::string& field = text(name);
    if (field.empty()) return if_empty;
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    check(error == std::errc() && end == field.data() + field.size() && value >= least,
          "{}: {} is '{}', expected a number of at least {}", where_, name, field, least);
    return value;
  }
  int whole(const char* name, int least, int if_empty) const {
    const double value = number(name, least, if_empty);
    check(value == static_cast<int>(value), "{}: {} is {}, expected a whole number", where_, name, value);
    return static_cast<int>(value);
  }
  const std::string& where() const { return where_; }

 private:
  const std::vector<std::string>& names_;
  std::vector<std::string> fields_;
  std::string where_;
};

template <class Visit>
void each_row(const std::filesystem::path& path, const Visit& visit) {
  std::ifstream in(path);
  if (!in) fail("cannot read the trace {}", path.string());
  std::string line;
  std::vector<std::string> names;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (names.empty()) {
      names = split(line, ',');
    } else {
      visit(Row(names, split(line, ','), fmt::format("{}:{}", path.string(), number)));
    }
  }
}

std::string number(double value) { return value == kNever ? "" : fmt::format("{}", value); }

}  // namespace

Trace read_trace(const std::filesystem::path& jobs, const std::filesystem::path& hosts) {
  Trace trace;
  each_row(jobs, [&](const Row& row) {
    TraceJob job{row.number("submitted", 0, 0),
                 row.text("model"),
                 row.whole("fixed", 1, 1),
                 row.whole("min", 1, 1),
                 row.whole("max", 1, 1),
                 row.number("samples", 1, 1),
                 {},
                 row.whole("priority", -10, 0),
                 row.number("deadline", 0, kNever)};
    check(job.min <= job.max, "{}: min {} is more than max {}", row.where(), job.min, job.max);
    if (!row.text("kinds").empty()) job.kinds = split(row.text("kinds"), '|');
    trace.jobs.push_back(std::move(job));
  });
  each_row(hosts, [&](const Row& row) {
    TraceHost host{row.text("host"),
                   row.text("kind"),
                   row.whole("slots", 1, 1),
                   row.number("from", 0, 0),
                   row.number("until", 0, kNever),
                   row.number("notice", 0, 0)};
    check(host.from < host.until, "{}: from {} until {}", row.where(), host.from, host.until);
    trace.hosts.push_back(std::move(host));
  });
  std::stable_sort(trace.jobs.begin(), trace.jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submitted < b.submitted; });
  return trace;
}

void write_trace(const Trace& trace, const std::filesystem::path& jobs, const std::filesystem::path& hosts) {
  std::ofstream job_file(jobs), host_file(hosts);
  job_file << "submitted,model,fixed,min,max,samples,kinds,priority,deadline\n";
  for (const TraceJob& job : trace.jobs)
    job_file << fmt::format("{},{},{},{},{},{},{},{},{}\n", job.submitted, job.model, job.fixed, job.min, job.max,
                            job.samples, fmt::join(job.kinds, "|"), job.priority, number(job.deadline));
  host_file << "host,kind,slots,from,until,notice\n";
  for (const TraceHost& host : trace.hosts)
    host_file << fmt::format("{},{},{},{},{},{}\n", host.host, host.kind, host.slots, host.from, number(host.until),
                             host.notice);
  job_file.close();
  host_file.close();
  if (!job_file || !host_file) fail("cannot write the trace to {} and {}", jobs.string(), hosts.string());
}

Job job_of(const TraceJob& trace, Id id, const Table& table) {
  const auto found = table.find(trace.model);
  check(found != table.end(), "the trace has a job of the model '{}', which the table of speeds lacks", trace.model);
  const Model& model = found->second;
  Job job;
  job.id = id;
  job.name = trace.model;
  job.min_workers = trace.min;
  job.max_workers = trace.max;
  job.fixed_workers = trace.fixed;
  job.kinds = trace.kinds;
  job.shapes = model.shapes;
  job.priority = trace.priority;
  job.submitted = job.since = trace.submitted;
  job.deadline = trace.deadline;
  job.virtual_ranks = model.virtual_ranks;
  job.total = trace.samples;
  if (model.validations.samples > 0)
    job.total = work_of_all(std::llround(trace.samples / model.batch), model.batch, model.validations);
  job.costs = model.costs;
  job.speed = model.speed;
  job.shape = model.shapes.front();
  return job;
}

}  // namespace elinvar::pool
