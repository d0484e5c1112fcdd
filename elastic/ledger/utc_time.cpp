#include "elastic/ledger/utc_time.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <ctime>

namespace elinvar {

constexpr const char* kFormat = "%Y-%m-%dT%H:%M:%S";

std::string utc_now(double ago) {
  using namespace std::chrono;
  const auto now = system_clock::now().time_since_epoch() - duration_cast<nanoseconds>(duration<double>(ago));
  const std::time_t seconds = duration_cast<std::chrono::seconds>(now).count();
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, kFormat, &utc);
  return fmt::format("{}.{:03}Z", text, duration_cast<milliseconds>(now).count() % 1000);
}

std::optional<double> seconds_of_utc(const std::string& text) {
  std::tm utc{};
  const char* rest = ::strptime(text.c_str(), kFormat, &utc);
  if (rest == nullptr) return std::nullopt;
  return static_cast<double>(::timegm(&utc)) + (*rest == '.' ? std::strtod(rest, nullptr) : 0);
}

}  // namespace elinvar
