#pragma once
// The places where settings come from, for error messages.
#include <map>
#include <string>
#include <utility>

#include "tensor/base/setting.h"

namespace elinvar {

// Returns "file.toml:12", or "--set a.b" for an override. An unknown key has the place of its table, or else of the
// file.
class Places {
 public:
  explicit Places(std::string file = "") : file_(std::move(file)) {}
  void add(const std::string& key, std::string place) { of_key_[key] = std::move(place); }
  const std::string& operator()(const std::string& key) const;

 private:
  std::string file_;
  std::map<std::string, std::string> of_key_;  // by "table" and "table.key"
};

// Returns f(). Converts a SettingError (tensor/base/setting.h) to a UsageError that begins with the setting's place.
template <class F>
auto with_places(const Places& places, F f) {
  try {
    return f();
  } catch (const SettingError& error) {
    throw UsageError(places(error.key()) + ": " + error.what());
  }
}

}  // namespace elinvar
