#pragma once
// A JSON value that is a field of a struct and is only passed on. Headers that declare such a field need not include
// nlohmann/json.hpp, which takes longer to compile than most sources.
#include <memory>
#include <nlohmann/json_fwd.hpp>

namespace elinvar {

class JsonValue {
 public:
  JsonValue() = default;                   // {}
  JsonValue(const nlohmann::json& value);  // copies share the value
  const nlohmann::json& operator*() const;
  const nlohmann::json* operator->() const { return &**this; }

 private:
  std::shared_ptr<const nlohmann::json> value_;
};

}  // namespace elinvar
