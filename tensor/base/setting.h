#pragma once
// Errors in settings of a configuration, thrown by the code that uses them. That code knows the key. The reader of the
// configuration knows its place, a line of a file or an option, and prepends it to the message (tools/config/config.h).
//
//   check_setting(c.momentum >= 0 && c.momentum < 1, "optimizer.momentum", "must be in [0, 1), got {}", c.momentum);
//   UsageError: optimizer.momentum must be in [0, 1), got 2
#include <string>
#include <string_view>

#include "tensor/base/check.h"

namespace elinvar {

class SettingError : public UsageError {
 public:
  SettingError(std::string_view key, const std::string& complaint)
      : UsageError(fmt::format("{} {}", key, complaint)), key_(key) {}

  const std::string& key() const { return key_; }  // "<table>.<key>"

 private:
  std::string key_;
};

template <class... Args>
void check_setting(bool ok, std::string_view key, fmt::format_string<Args...> complaint, Args&&... args) {
  if (!ok) [[unlikely]]
    throw SettingError(key, fmt::format(complaint, std::forward<Args>(args)...));
}

}  // namespace elinvar
