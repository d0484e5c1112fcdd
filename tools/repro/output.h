#pragma once
// What --json prints. Texts that are no UTF-8, as those of damaged files may be, get replacement characters.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace elinvar {

inline void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace elinvar
