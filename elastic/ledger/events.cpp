#include "elastic/ledger/events.h"

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"

namespace elinvar {

std::string utc_now(double ago) {
  using namespace std::chrono;
  const auto now = system_clock::now().time_since_epoch() - duration_cast<nanoseconds>(duration<double>(ago));
  const std::time_t seconds = duration_cast<std::chrono::seconds>(now).count();
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, duration_cast<milliseconds>(now).count() % 1000);
}

nlohmann::ordered_json EventLog::write(std::string_view event, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line = {{"time", utc_now()}, {"event", event}};
  line.update(fields);
  // File names need not be UTF-8, which JSON is.
  file_.append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  file_.write();
  return line;
}

}  // namespace elinvar
