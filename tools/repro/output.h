#pragma once
// Prints the result of --json. Bytes that are not UTF-8, which damaged files may contain, become replacement
// characters.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace elinvar {

inline void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace elinvar
