#pragma once
// The read-only page of a pool, on loopback (tools/web/server.h): / is the page, /data.json?window=SECONDS its data,
// /metrics the numbers for Prometheus.
#include <mutex>
#include <optional>

#include "tools/pool/store/store.h"
#include "tools/web/server.h"

namespace elinvar::pool {

class Page {
 public:
  Page(const std::filesystem::path& pool_directory, int port);  // 0: any free port
  std::string url() const { return server_.url() + "/"; }

 private:
  std::optional<WebPage> answer(const WebRequest& request);
  std::mutex mutex_;
  Store store_;
  WebServer server_;  // last: its threads use the members above
};

}  // namespace elinvar::pool
