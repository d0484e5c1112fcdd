#include "tensor/base/json_value.h"

#include <nlohmann/json.hpp>

namespace elinvar {

JsonValue::JsonValue(const nlohmann::json& value) : value_(std::make_shared<const nlohmann::json>(value)) {}

const nlohmann::json& JsonValue::operator*() const {
  static const nlohmann::json empty = nlohmann::json::object();
  return value_ ? *value_ : empty;
}

}  // namespace elinvar
