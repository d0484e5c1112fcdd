#include "tools/pool/page/page.h"

#include <algorithm>

#include "tools/pool/page/metrics.h"
#include "tools/pool/page/view.h"
#include "tools/web/prometheus_text.h"

extern const char* const kPoolPage;  // from tools/pool/page/ in the frame of tools/web/page/

namespace elinvar::pool {

constexpr double kWindow = 3600, kShortest = 60, kLongest = 7 * 86400;  // seconds shown: default, least and most

Page::Page(const std::filesystem::path& pool_directory, int port)
    : store_(Store::open_existing(pool_directory)),
      server_("127.0.0.1", port, [this](const WebRequest& request) { return answer(request); }) {}

std::optional<WebPage> Page::answer(const WebRequest& request) {
  if (request.path == "/") return WebPage{"text/html; charset=utf-8", kPoolPage};
  const std::lock_guard lock(mutex_);
  if (!store_.in_place()) store_.reopen();  // the daemon has put the database back
  if (request.path == "/metrics") return WebPage{PrometheusText::kContentType, pool_metrics(store_)};
  if (request.path != "/data.json") return std::nullopt;
  const auto asked = request.query.find("window");
  const double window = asked == request.query.end() ? kWindow : std::strtod(asked->second.c_str(), nullptr);
  const auto view = pool_view(store_, wall_clock(), window >= kShortest ? std::min(window, kLongest) : kWindow);
  return WebPage{"application/json", view.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace elinvar::pool
