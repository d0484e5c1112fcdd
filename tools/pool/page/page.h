#pragma once
// The page of a pool, on loopback and only to look at (tools/web/server.h): / is the page, /data.json?window=SECONDS
// what it shows, /metrics the same for Prometheus. Nothing can be changed by it.
#include <mutex>
#include <optional>

#include "tools/pool/store/store.h"
#include "tools/web/server.h"

namespace elinvar::pool {

class Page {
 public:
  Page(const std::filesystem::path& pool_directory, int port);  // 0: any that is free
  std::string url() const { return server_.url() + "/"; }

 private:
  std::optional<WebPage> answer(const WebRequest& request);
  std::mutex mutex_;
  Store store_;
  WebServer server_;  // last: its threads use the others
};

}  // namespace elinvar::pool
