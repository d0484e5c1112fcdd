#pragma once
// Where the settings of a configuration stand, for messages.
#include <map>
#include <string>
#include <utility>

#include "tensor/base/setting.h"

namespace elinvar {

// "file.toml:12", or "--set a.b" of an override. A key that is nowhere stands where its table does, or else in the file
// as a whole.
class Places {
 public:
  explicit Places(std::string file = "") : file_(std::move(file)) {}
  void add(const std::string& key, std::string place) { of_key_[key] = std::move(place); }
  const std::string& operator()(const std::string& key) const;

 private:
  std::string file_;
  std::map<std::string, std::string> of_key_;  // of "table" and "table.key"
};

// f(). A SettingError (tensor/base/setting.h) becomes a UsageError that says first where the setting stands.
template <class F>
auto with_places(const Places& places, F f) {
  try {
    return f();
  } catch (const SettingError& error) {
    throw UsageError(places(error.key()) + ": " + error.what());
  }
}

}  // namespace elinvar
