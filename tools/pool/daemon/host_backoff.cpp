#include "tools/pool/daemon/host_backoff.h"

#include "tools/pool/daemon/backoff.h"

namespace elinvar::pool {

constexpr int kExcludedAfter = 3;  // failures in a row

double HostBackoff::failed(const std::string& host, Id job, double now) {
  Host& h = hosts_[host];
  const double seconds = backoff_seconds(++h.failures);
  h.until = now + seconds;
  h.jobs.insert(job);
  return seconds;
}

bool HostBackoff::waiting(const std::string& host, double now) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && now < found->second.until;
}

bool HostBackoff::excluded(const std::string& host, double now) const {
  return waiting(host, now) && hosts_.at(host).failures >= kExcludedAfter;
}

bool HostBackoff::failed_for(const std::string& host, Id job) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && found->second.jobs.contains(job);
}

}  // namespace elinvar::pool
