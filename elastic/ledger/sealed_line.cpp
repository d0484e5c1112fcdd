#include "elastic/ledger/sealed_line.h"

#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tensor/base/json.h"
#include "tensor/digest_tree.h"

namespace elinvar {
namespace {

constexpr std::string_view kBefore = ",\"sum\":\"", kAfter = "\"}";
constexpr size_t kTail = kBefore.size() + kShortDigest + kAfter.size();

std::string sum_of(std::string_view text) { return short_hex(digest_bytes(text.data(), text.size())); }

}  // namespace

std::string sealed(std::string_view object) {
  const std::string_view text = object.substr(0, object.size() - 1);
  return fmt::format("{}{}{}{}", text, kBefore, sum_of(text), kAfter);
}

std::string fault_of_seal(std::string_view line) {
  if (line.empty()) return "it is empty";
  const size_t text = line.size() < kTail ? 0 : line.size() - kTail;
  if (text == 0 || line.substr(text, kBefore.size()) != kBefore || line.substr(line.size() - kAfter.size()) != kAfter)
    return "it does not end with a checksum";
  const std::string_view said = line.substr(text + kBefore.size(), kShortDigest);
  const std::string found = sum_of(line.substr(0, text));
  return said == found ? "" : fmt::format("its checksum is {} where its text has {}", said, found);
}

nlohmann::json unsealed(std::string_view line) {
  const std::string fault = fault_of_seal(line);
  if (!fault.empty()) fail("{}", fault);
  nlohmann::json json = parse_json(line);
  if (!json.is_object()) fail("it is no JSON object");
  return json;
}

}  // namespace elinvar
